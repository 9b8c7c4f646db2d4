SELECT category AS name, count(*) AS orders, sum(cents) AS cents FROM enrich GROUP BY category ORDER BY category
