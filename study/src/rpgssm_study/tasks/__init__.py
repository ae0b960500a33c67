"""The paper's tasks: data sets with known ground truth, made from a seed and from real images and recordings."""

from .registry import TASKS as TASKS
from .registry import background_variants as background_variants
from .registry import load_task as load_task
from .registry import task_names as task_names
from .sheet import contact_sheet as contact_sheet
from .task import Split as Split
from .task import Task as Task
