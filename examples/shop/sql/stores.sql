SELECT id AS store, format_string('store-%02d', id) AS store_name FROM range(12)
