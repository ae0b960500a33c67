"""The experiments: which runs there are, how they are done and stored, and what is made of the stored results.

A run is a task, a method with its settings, and seeds (`runs`). Recipes and protocols say which runs there are, as
plain data (`recipes`, `protocols`, `plans`). Runs are handed out to workers (`claims`, `queues`), done (`running`) and
written as one small JSON file each (`store`). Tables and the report are made from these files alone.
"""
