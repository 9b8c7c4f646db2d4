SELECT hour AS name, count(*) AS orders, sum(cents) AS cents FROM enrich GROUP BY hour ORDER BY hour
