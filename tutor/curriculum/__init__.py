"""The lessons: what they are, how they depend on each other, their text, quizzes and numbers."""
