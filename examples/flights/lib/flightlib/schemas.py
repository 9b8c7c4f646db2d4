"""Columns of the raw CSV files, in their order, so that Spark need not infer them from the data."""

FLIGHTS = """
    year INT, month INT, day INT, dep_time INT, sched_dep_time INT, dep_delay INT, arr_time INT,
    sched_arr_time INT, arr_delay INT, carrier STRING, flight INT, tailnum STRING, origin STRING,
    dest STRING, air_time INT, distance INT, hour INT, minute INT, time_hour TIMESTAMP
"""

WEATHER = """
    origin STRING, year INT, month INT, day INT, hour INT, temp DOUBLE, dewp DOUBLE, humid DOUBLE,
    wind_dir INT, wind_speed DOUBLE, wind_gust DOUBLE, precip DOUBLE, pressure DOUBLE, visib DOUBLE,
    time_hour TIMESTAMP
"""

PLANES = """
    tailnum STRING, year INT, type STRING, manufacturer STRING, model STRING, engines INT, seats INT,
    speed INT, engine STRING
"""

AIRPORTS = """
    faa STRING, name STRING, lat DOUBLE, lon DOUBLE, alt INT, tz INT, dst STRING, tzone STRING
"""

AIRLINES = "carrier STRING, name STRING"
