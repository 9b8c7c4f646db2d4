SELECT id, id * 2 AS twice FROM range(100)
