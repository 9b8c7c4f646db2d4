"""Write the report from four small tables: figures and a picture. Fails if the tables disagree."""

import json
from typing import Any

from pyspark.sql import SparkSession

from nimbus.task import context

WIDTH, ROW, LEFT = 720, 22, 130


def bars(title: str, rows: list[dict[str, Any]], top: int) -> list[str]:
    """The lines of a bar chart in SVG that begins at `top` pixels."""
    most = max(row["cents"] for row in rows)
    lines = [f'<text x="16" y="{top + 24}" font-size="17">{title}</text>']
    for number, row in enumerate(rows):
        y, width = top + 40 + number * ROW, (WIDTH - LEFT - 110) * row["cents"] // most
        lines += [
            f'<text x="16" y="{y + 13}">{row["name"]}</text>',
            f'<rect x="{LEFT}" y="{y}" width="{width}" height="{ROW - 6}" fill="#2f6db5"/>',
            f'<text x="{LEFT + width + 8}" y="{y + 13}">{row["cents"] // 100:,}</text>',
        ]
    return lines


def main() -> None:
    task = context()
    spark = SparkSession.builder.getOrCreate()
    tables = {
        name: [row.asDict() for row in spark.read.parquet(str(folder / "data")).orderBy("name").collect()]
        for name, folder in task.inputs.items()
    }
    totals = {tuple(sum(row[key] for row in rows) for key in ("orders", "cents")) for rows in tables.values()}
    if len(totals) != 1:
        raise ValueError(f"the tables have different totals: {totals}")
    orders, cents = totals.pop()
    summary = {
        "orders": orders,
        "sold": cents / 100,
        "sold_in_each_category": {row["name"]: row["cents"] / 100 for row in tables["by_category"]},
        "sold_in_each_country": {row["name"]: row["cents"] / 100 for row in tables["by_country"]},
        "orders_in_the_busiest_hour": max(row["orders"] for row in tables["by_hour"]),
    }
    (task.output / "summary.json").write_text(json.dumps(summary, indent=2) + "\n", encoding="utf-8")
    lines, top = [], 0
    for name, rows in tables.items():
        lines += bars(f"Sold {name.replace('_', ' ')}", rows, top)
        top += 60 + len(rows) * ROW
    size = f'width="{WIDTH}" height="{top}" font-family="sans-serif" font-size="13"'
    frame = f'<svg xmlns="http://www.w3.org/2000/svg" {size}>'
    (task.output / "report.svg").write_text("\n".join([frame, *lines, "</svg>\n"]), encoding="utf-8")


if __name__ == "__main__":
    main()
