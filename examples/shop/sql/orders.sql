-- A year of orders, most of them around noon.
SELECT
    id AS order_id,
    pmod(hash(id, 'customer'), 10000) AS customer,
    pmod(hash(id, 'product'), 50) AS product,
    pmod(hash(id, 'store'), 12) AS store,
    1 + pmod(hash(id, 'pieces'), 5) AS pieces,
    CAST(pmod(hash(id, 'early'), 14) + pmod(hash(id, 'late'), 11) AS INT) AS hour
FROM range({{ params.orders }})
