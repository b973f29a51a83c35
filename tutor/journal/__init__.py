"""The learner's log: what they opened, predicted, ran and passed, and the progress that follows from it."""
