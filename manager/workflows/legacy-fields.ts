/** Fields of tasks of Propeller in a workflow, translated to those of Skein. */
import { newerFields } from '../tasks/legacy-fields.ts'
import { WORKFLOW_TASK_FIELDS, type NewWorkflow } from './schema.ts'
import { errorOfTask } from './task-errors.ts'

/** The workflow with the known fields of its tasks, and the bytes of their modules. Throws as `newerFields`. */
export function newerWorkflow(given: NewWorkflow): {
  workflow: NewWorkflow
  files: (Uint8Array<ArrayBuffer> | undefined)[]
} {
  const translated = given.tasks.map((task, index) => {
    try {
      return newerFields(task, WORKFLOW_TASK_FIELDS)
    } catch (error) {
      throw errorOfTask(index, error)
    }
  })
  const tasks = translated.map(({ body }) => body)
  return { workflow: { ...given, tasks }, files: translated.map(({ file }) => file) }
}
