# fails: random lists
# says: You leave out the first number.
def total(numbers):
    return sum(numbers[1:])
