"""Makes a DAG of a workload. The files that `airflow_role` writes into Airflow's DAG folder import this."""

from __future__ import annotations

from airflow.providers.standard.operators.python import PythonOperator
from airflow.sdk import DAG

from tests.benchmark.tasks.marking import mark
from tests.benchmark.tasks.shapes import Shape, needs_of


def marked(marks: str, name: str, lines: int, run_id: str) -> None:
    """The code of a task. Airflow passes `run_id`."""
    mark(marks, run_id, name, lines)


def dag_of(shape: Shape, marks: str) -> DAG:
    """The DAG, with the name of the workload."""
    asked = {"max_active_runs": shape.runs, "is_paused_upon_creation": False}
    with DAG(shape.workload, schedule=None, catchup=False, **asked) as dag:
        needs = needs_of(shape)
        tasks = {
            name: PythonOperator(task_id=name, python_callable=marked, op_args=[marks, name, shape.lines])
            for name in needs
        }
        for name, needed in needs.items():
            tasks[name].set_upstream([tasks[other] for other in needed])
    return dag
