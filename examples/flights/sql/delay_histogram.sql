-- How many flights had each delay. Delays are whole minutes, so this is small,
-- and the report can take exact medians from it without Spark.
SELECT kind, minutes, count(*) AS flights
FROM (
    SELECT 'departure' AS kind, dep_delay AS minutes FROM enrich
    UNION ALL
    SELECT 'arrival' AS kind, arr_delay AS minutes FROM enrich
)
WHERE minutes IS NOT NULL
GROUP BY kind, minutes
ORDER BY kind, minutes
