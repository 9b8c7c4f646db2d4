SELECT country AS name, count(*) AS orders, sum(cents) AS cents FROM enrich GROUP BY country ORDER BY country
