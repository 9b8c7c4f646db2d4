SELECT store_name AS name, count(*) AS orders, sum(cents) AS cents FROM enrich GROUP BY store_name ORDER BY store_name
