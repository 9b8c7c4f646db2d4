-- 10,000 customers in six countries. hash() gives the same customers each time.
SELECT id AS customer, element_at(array('DE', 'FR', 'IN', 'JP', 'NG', 'US'), 1 + pmod(hash(id), 6)) AS country
FROM range(10000)
