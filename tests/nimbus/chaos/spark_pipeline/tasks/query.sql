SELECT sum(id) AS total FROM range(1000);
