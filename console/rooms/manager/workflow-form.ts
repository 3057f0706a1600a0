/** The tasks of a new workflow as a form and as JSON: both say the same. Pure. */
import { formatJson, parseJson } from '../../api/json.ts'
import type { Input } from '../../api/call.ts'

export type WorkflowTasks = NonNullable<Input<'POST /workflows'>['body']>['tasks']
type WorkflowTask = WorkflowTasks[number]
export type RunIf = 'success' | 'failure' | 'always'

export type Step = {
  /** The page uses this key, because names change. */
  readonly key: string
  readonly name: string
  /** The source of its module. `none`: it is uploaded later, on the page of the task. */
  readonly source: 'none' | 'file' | 'task' | 'reference'
  readonly file: File | undefined
  /** The id of the task whose module it gets. */
  readonly task: string
  readonly reference: string
  readonly functionName: string
  /** A list in JSON; empty: none. */
  readonly inputs: string
  readonly dependsOn: readonly string[]
  readonly runIf: RunIf
  /** Fields that the form does not show. */
  readonly others: Readonly<Record<string, unknown>>
}

export const RUN_IFS: readonly (readonly [RunIf, string])[] = [
  ['success', 'all of them completed'],
  ['failure', 'one of them failed'],
  ['always', 'they ended, however'],
]

export const newStep = (key: string, name = ''): Step => ({
  key,
  name,
  source: 'none',
  file: undefined,
  task: '',
  reference: '',
  functionName: '',
  inputs: '',
  dependsOn: [],
  runIf: 'success',
  others: {},
})

/** What is wrong with the text of the inputs; undefined: nothing. */
export function inputsFault(text: string): string | undefined {
  if (text.trim() === '') return undefined
  try {
    return Array.isArray(parseJson(text)) ? undefined : 'The inputs must be a list, such as [1, 2]'
  } catch (error) {
    return `The inputs are not JSON: ${(error as Error).message}`
  }
}

/** Throws an error with a sentence for inputs that are not a list. */
export function tasksOf(steps: readonly Step[]): WorkflowTasks {
  return steps.map(({ name, reference, source, functionName, inputs, dependsOn, runIf, others }) => {
    const fault = inputsFault(inputs)
    if (fault !== undefined) throw new Error(`${name}: ${fault}`)
    const task: WorkflowTask = {
      ...others,
      name: name.trim(),
      ...(source === 'reference' && reference.trim() !== '' ? { image_url: reference.trim() } : {}),
      ...(functionName.trim() === '' ? {} : { function: functionName.trim() }),
      ...(inputs.trim() === '' ? {} : { inputs: parseJson(inputs) as unknown[] }),
      ...(dependsOn.length === 0 ? {} : { depends_on: [...dependsOn] }),
      ...(dependsOn.length === 0 || runIf === 'success' ? {} : { run_if: runIf }),
    }
    return task
  })
}

export const jsonOfSteps = (steps: readonly Step[]): string => formatJson(tasksOf(steps), 2)

/** The steps of a text. Files and tasks that were chosen stay with the step of their name. Throws an error with a sentence. */
export function stepsOf(text: string, before: readonly Step[], newKey: () => string): Step[] {
  let given: unknown
  try {
    given = parseJson(text)
  } catch (error) {
    throw new Error(`The tasks are not JSON: ${(error as Error).message}`, { cause: error })
  }
  if (!Array.isArray(given)) throw new Error('The tasks must be a list')
  return given.map((one: unknown, at) => {
    if (typeof one !== 'object' || one === null || Array.isArray(one))
      throw new Error(`Task ${at + 1} is not an object`)
    const {
      name,
      image_url: reference,
      function: functionName,
      inputs,
      depends_on: parents,
      run_if: runIf,
      ...others
    } = one as Record<string, unknown>
    const text = (value: unknown) => (typeof value === 'string' ? value : '')
    const known = before.find((step) => step.name === name)
    return {
      ...newStep(known?.key ?? newKey(), text(name)),
      ...(text(reference) === ''
        ? { source: known?.source === 'reference' ? ('none' as const) : (known?.source ?? ('none' as const)) }
        : { source: 'reference' as const, reference: text(reference) }),
      file: known?.file,
      task: known?.task ?? '',
      functionName: text(functionName),
      inputs: inputs === undefined || inputs === null ? '' : formatJson(inputs),
      dependsOn: Array.isArray(parents) ? parents.filter((parent) => typeof parent === 'string') : [],
      runIf: RUN_IFS.find(([value]) => value === runIf)?.[0] ?? 'success',
      others,
    }
  })
}

/** Renames a step. What depends on the step depends on the new name. */
export function renamed(steps: readonly Step[], key: string, name: string): Step[] {
  const before = steps.find((step) => step.key === key)?.name
  return steps.map((step) => ({
    ...step,
    name: step.key === key ? name : step.name,
    dependsOn:
      before === undefined || before === ''
        ? step.dependsOn
        : step.dependsOn.map((one) => (one === before ? name : one)),
  }))
}

/** Removes a step. Nothing depends on it afterwards. */
export function without(steps: readonly Step[], key: string): Step[] {
  const gone = steps.find((step) => step.key === key)?.name
  return steps
    .filter((step) => step.key !== key)
    .map((step) => ({ ...step, dependsOn: step.dependsOn.filter((one) => one !== gone) }))
}

/** Names of steps that may come before this one: those that do not depend on it. */
export function possibleParents(steps: readonly Step[], step: Step): string[] {
  const after = new Set([step.name])
  for (;;) {
    const found = steps.filter(({ name, dependsOn }) => !after.has(name) && dependsOn.some((one) => after.has(one)))
    if (found.length === 0) break
    for (const { name } of found) after.add(name)
  }
  return steps.map(({ name }) => name).filter((name) => name !== '' && !after.has(name))
}
