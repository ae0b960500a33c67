"""The study: eleven methods on ten tasks, and what is made of the stored results.

A run is a task, a method with its settings, and seeds (`runs`). Recipes and protocols say which runs there are, as
plain data (`recipes`, `protocols`, `plans`). Dask hands them out to workers (`cluster`, `workers`). Each is done
(`running`) and written as one small JSON file (`store`). Tables and the report are made from these files alone. The
study imports `rpgssm` as any user does; `rpgssm` knows nothing of it.
"""
