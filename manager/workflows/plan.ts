/** What a workflow does next, from the states of its steps alone (task-manager.md sections 1 and 2). Pure. */
import { refusedField } from '#core/errors/index.ts'
import type { RunIf } from '../model/references.ts'
import { TASK_STATE, type TaskState } from '#proto/index.ts'

export type Step = {
  name: string
  dependsOn: readonly string[]
  runIf: RunIf
  /** pending: waits for its parents; scheduled: its run was started; else how it ended. */
  state: TaskState
}

export type Plan = {
  start: string[]
  skip: string[]
  /** How the whole ended; undefined: something is under way. */
  end: TaskState | undefined
}

const { pending, completed, failed, skipped, stopped } = TASK_STATE
const ENDED: ReadonlySet<TaskState> = new Set([completed, failed, skipped, stopped])

export function planSteps(steps: readonly Step[]): Plan {
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

/** Without parents there is nothing to fail: it runs. */
function isToRun({ runIf }: Step, parents: readonly TaskState[]): boolean {
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

function endOf(steps: readonly Step[]): TaskState {
  const has = (wanted: TaskState) => steps.some(({ state }) => state === wanted)
  if (has(failed)) return failed
  return has(stopped) ? stopped : completed
}

/** Throws `malformed` naming a name that comes twice, a parent that is none, or the whole cycle. */
export function requireAcyclic(steps: readonly Pick<Step, 'name' | 'dependsOn'>[]): void {
  const byName = new Map<string, readonly string[]>()
  for (const [index, { name, dependsOn }] of steps.entries()) {
    if (byName.has(name))
      throw refusedField(`/tasks/${index}/name`, `must differ from the other names: ${name} comes twice`)
    byName.set(name, dependsOn)
  }
  for (const [index, { dependsOn }] of steps.entries()) {
    const unknown = dependsOn.find((name) => !byName.has(name))
    if (unknown !== undefined)
      throw refusedField(`/tasks/${index}/depends_on`, `must name tasks of the workflow, not ${unknown}`)
  }
  const done = new Set<string>()
  for (const start of byName.keys()) {
    const cycle = findCycle(start, byName, done)
    if (cycle !== undefined) throw refusedField('/tasks', `must not depend on themselves: ${cycle.join(' -> ')}`)
  }
}

/** The cycle that is reached from here, as the names along it; without recursion, because chains may be long. */
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
