/** The next actions of a workflow, computed from the states of its steps (task-manager.md sections 1 and 2). Pure. */
import { refusedField } from '#core/errors/index.ts'
import type { RunIf } from '../model/result-references.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'

export type WorkflowStep = {
  name: string
  dependsOn: readonly string[]
  runIf: RunIf
  /** pending: waits for its parents; scheduled: its run was started; else its end state. */
  state: TaskState
}

export type WorkflowPlan = {
  start: string[]
  skip: string[]
  /** The end state of the workflow; undefined: a step is active. */
  end: TaskState | undefined
}

const { pending, completed, failed, skipped, stopped } = TASK_STATE
const ENDED: ReadonlySet<TaskState> = new Set([completed, failed, skipped, stopped])

export function planSteps(steps: readonly WorkflowStep[]): WorkflowPlan {
  const states = new Map(steps.map((step) => [step.name, step.state]))
  const start: string[] = []
  const skip: string[] = []
  for (const step of steps) {
    if (step.state !== pending) continue
    const parents = step.dependsOn.map((name) => states.get(name) ?? skipped)
    if (!parents.every((state) => ENDED.has(state))) continue
    if (isToRun(step, parents)) start.push(step.name)
    else skip.push(step.name)
  }
  const hasEnded = steps.every(({ state }) => ENDED.has(state))
  return { start, skip, end: hasEnded ? endOf(steps) : undefined }
}

/** A step without parents always runs. */
function isToRun({ runIf }: WorkflowStep, parents: readonly TaskState[]): boolean {
  if (parents.length === 0) return true
  switch (runIf) {
    case 'always':
      return true
    case 'failure':
      return parents.includes(failed)
    case 'success':
      return parents.every((state) => state === completed)
  }
}

function endOf(steps: readonly WorkflowStep[]): TaskState {
  const has = (wanted: TaskState) => steps.some(({ state }) => state === wanted)
  if (has(failed)) return failed
  return has(stopped) ? stopped : completed
}

/** Throws `malformed` with a duplicate name, an unknown parent, or the whole cycle. */
export function requireValidDependencies(steps: readonly Pick<WorkflowStep, 'name' | 'dependsOn'>[]): void {
  const byName = new Map<string, readonly string[]>()
  for (const [index, { name, dependsOn }] of steps.entries()) {
    if (byName.has(name)) throw refusedField(`/tasks/${index}/name`, `must be unique: ${name} is used twice`)
    byName.set(name, dependsOn)
  }
  for (const [index, { dependsOn }] of steps.entries()) {
    const unknown = dependsOn.find((name) => !byName.has(name))
    if (unknown !== undefined)
      throw refusedField(`/tasks/${index}/depends_on`, `must contain only tasks of the workflow: ${unknown} is unknown`)
  }
  const done = new Set<string>()
  for (const start of byName.keys()) {
    const cycle = findCycle(start, byName, done)
    if (cycle !== undefined) throw refusedField('/tasks', `must not form a cycle: ${cycle.join(' -> ')}`)
  }
}

/** A cycle that can be reached from here, as its names; iterative, because chains can be long. */
function findCycle(
  start: string,
  parentsOf: ReadonlyMap<string, readonly string[]>,
  done: Set<string>,
): string[] | undefined {
  const path: { name: string; next: number }[] = [{ name: start, next: 0 }]
  const onPath = new Set([start])
  while (path.length > 0) {
    const at = path.at(-1) as { name: string; next: number }
    const parent = done.has(at.name) ? undefined : parentsOf.get(at.name)?.[at.next]
    at.next += 1
    if (parent === undefined) {
      done.add(at.name)
      onPath.delete(at.name)
      path.pop()
    } else if (onPath.has(parent)) {
      const names = path.map(({ name }) => name)
      return [...names.slice(names.indexOf(parent)), parent]
    } else if (!done.has(parent)) {
      onPath.add(parent)
      path.push({ name: parent, next: 0 })
    }
  }
  return undefined
}
