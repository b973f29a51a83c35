# fails: empty list
# says: total([]) is None, expected 0
def total(numbers):
    return sum(numbers) if numbers else None
