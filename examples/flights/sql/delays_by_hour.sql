-- Delays by the hour in which a flight should have left, in New York's time.
CREATE OR REPLACE TEMPORARY VIEW marked AS
SELECT hour, dep_delay, arr_delay, cancelled, dep_delay >= {{ params.late_minutes }} AS late
FROM enrich;

SELECT
    hour,
    count(*) AS flights,
    count_if(cancelled) AS cancelled,
    count(dep_delay) AS departed,
    count_if(late) AS late,
    avg(dep_delay) AS mean_dep_delay,
    avg(arr_delay) AS mean_arr_delay
FROM marked
GROUP BY hour
ORDER BY hour
