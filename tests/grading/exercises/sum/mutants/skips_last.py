# fails: random lists
# says: You leave out the last number.
def total(numbers):
    return sum(numbers[:-1])
