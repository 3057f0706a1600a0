/** A new workflow: its tasks in a form with the graph that they make, or as JSON. */
import { useQuery } from '@tanstack/react-query'
import { useNavigate } from '@tanstack/react-router'
import { useRef, useState } from 'react'
import { call, send } from '../../api/call.ts'
import { query } from '../../api/queries.ts'
import { Button, Check, Segments, SelectField, TextArea, TextField } from '../../design/controls.tsx'
import { FormDialog } from '../../design/layers.tsx'
import { paths } from '../../paths.ts'
import { InputError, useFormAction } from '../../shell/action.ts'
import { uploadModule } from './tasks.tsx'
import { ModuleDrop } from './upload.tsx'
import {
  RUN_IFS,
  inputsFault,
  jsonOfSteps,
  newStep,
  possibleParents,
  renamed,
  stepsOf,
  tasksOf,
  without,
} from './workflow-form.ts'
import type { RunIf, Step } from './workflow-form.ts'
import { WorkflowGraph } from './workflow-graph.tsx'

/** Tasks whose module can be chosen. */
const SHOWN_TASKS = 100
const SOURCES: readonly (readonly [Step['source'], string])[] = [
  ['none', 'none yet'],
  ['file', 'a file'],
  ['task', 'that of a task'],
  ['reference', 'from a registry'],
]

export function NewWorkflow({ domain, onClose }: { domain: string; onClose: () => void }) {
  const navigate = useNavigate()
  const nextKey = useRef(1)
  const newKey = () => `step ${nextKey.current++}`
  const [name, setName] = useState('')
  const [tab, setTab] = useState<'form' | 'json'>('form')
  const [steps, setSteps] = useState<readonly Step[]>(() => [newStep('step 0')])
  const [text, setText] = useState('')
  const [fault, setFault] = useState<string>()
  const current = (): readonly Step[] => {
    try {
      return tab === 'form' ? steps : stepsOf(text, steps, newKey)
    } catch (error) {
      throw new InputError('tasks', (error as Error).message)
    }
  }
  const create = useFormAction('The workflow was not created', async () => {
    const chosen = current()
    const workflow = await createWorkflow(domain, name.trim(), chosen)
    await navigate({ to: paths.workflow(domain, workflow) })
  })
  const choose = (next: 'form' | 'json') => {
    setFault(undefined)
    try {
      if (next === 'json') setText(jsonOfSteps(steps))
      else setSteps(stepsOf(text, steps, newKey))
      setTab(next)
    } catch (error) {
      setFault((error as Error).message)
    }
  }
  const change = (key: string, changes: Partial<Step>) =>
    setSteps(steps.map((step) => (step.key === key ? { ...step, ...changes } : step)))
  const wrong = tab === 'form' ? faultOf(steps) : undefined
  return (
    <FormDialog
      title="New workflow"
      kind="wide"
      submit="Create workflow"
      action={create}
      onClose={onClose}
      disabledReason={wrong}
    >
      <TextField label="Name" field="name" value={name} onChange={setName} autoFocus required />
      <Segments
        label="Shown as"
        value={tab}
        onChange={(next) => (next === tab ? undefined : choose(next))}
        options={[
          ['form', 'Form'],
          ['json', 'JSON'],
        ]}
      />
      {fault === undefined ? null : (
        <p className="error" role="alert">
          {fault}
        </p>
      )}
      {tab === 'json' ? (
        <TextArea
          label="Tasks"
          field="tasks"
          rows={14}
          value={text}
          onChange={setText}
          hint="A list in JSON, with the fields of a task, depends_on and run_if. Files that were chosen in the form stay with the task of their name."
        />
      ) : (
        <>
          <WorkflowGraph
            tasks={steps.map((step) => ({
              id: step.key,
              name: step.name,
              state: 0,
              depends_on: [...step.dependsOn],
              run_if: step.runIf,
            }))}
          />
          {steps.map((step, at) => (
            <StepFields
              key={step.key}
              domain={domain}
              step={step}
              number={at + 1}
              parents={possibleParents(steps, step)}
              onName={(its) => setSteps(renamed(steps, step.key, its))}
              onChange={(changes) => change(step.key, changes)}
              onRemove={steps.length === 1 ? undefined : () => setSteps(without(steps, step.key))}
            />
          ))}
          <div className="row">
            <Button
              icon="plus"
              onClick={() => {
                const last = steps.at(-1)?.name ?? ''
                setSteps([...steps, { ...newStep(newKey()), dependsOn: last === '' ? [] : [last] }])
              }}
            >
              Add a task
            </Button>
          </div>
        </>
      )}
    </FormDialog>
  )
}

function faultOf(steps: readonly Step[]): string | undefined {
  const names = steps.map(({ name }) => name.trim())
  if (names.includes('')) return 'Name each task'
  if (new Set(names).size < names.length) return 'Two tasks have the same name'
  const step = steps.find(({ source, file, task }) =>
    source === 'file' ? file === undefined : source === 'task' && task === '',
  )
  if (step !== undefined) return `Choose the module of ${step.name}`
  const wrong = steps.find(({ inputs }) => inputsFault(inputs) !== undefined)
  return wrong === undefined ? undefined : `Correct the inputs of ${wrong.name}`
}

function StepFields({
  domain,
  step,
  number,
  parents,
  onName,
  onChange,
  onRemove,
}: {
  domain: string
  step: Step
  number: number
  parents: readonly string[]
  onName: (name: string) => void
  onChange: (changes: Partial<Step>) => void
  onRemove: (() => void) | undefined
}) {
  const shown = step.name === '' ? `Task ${number}` : step.name
  return (
    <fieldset className="step-fields">
      <legend>{shown}</legend>
      <div className="row top">
        <div className="grow">
          <TextField
            label="Name of the task"
            field={`tasks.${number - 1}.name`}
            value={step.name}
            onChange={onName}
            required
          />
        </div>
        {onRemove === undefined ? null : (
          <Button kind="quiet" icon="trash" label={`Remove ${shown}`} onClick={onRemove} />
        )}
      </div>
      <SelectField
        label="Module"
        value={step.source}
        onChange={(value) => onChange({ source: SOURCES.find(([one]) => one === value)?.[0] ?? 'none' })}
        options={SOURCES}
      />
      {step.source === 'file' ? <ModuleDrop file={step.file} onFile={(file) => onChange({ file })} /> : null}
      {step.source === 'task' ? <TaskChoice domain={domain} step={step} onChange={onChange} /> : null}
      {step.source === 'reference' ? (
        <TextField
          label="Reference"
          field={`tasks.${number - 1}.image_url`}
          value={step.reference}
          onChange={(reference) => onChange({ reference })}
          placeholder="registry.example.com/modules/filter:1.2"
          required
        />
      ) : null}
      <TextField
        label="Function"
        field={`tasks.${number - 1}.function`}
        value={step.functionName}
        onChange={(functionName) => onChange({ functionName })}
        hint="An export of the module. Empty: the name of the task"
      />
      <TextField
        label="Inputs"
        field={`tasks.${number - 1}.inputs`}
        error={inputsFault(step.inputs)}
        value={step.inputs}
        onChange={(inputs) => onChange({ inputs })}
        placeholder={parents[0] === undefined ? '[1, 2]' : `[{"from": "${parents[0]}", "result": 0}, 2]`}
        hint={'A list in JSON. {"from": a task, "result": 0} is a result of a task that it depends on'}
      />
      {parents.length === 0 ? null : (
        <div className="field" role="group" aria-label={`${shown} depends on`}>
          <span>Depends on</span>
          <div className="row wrap">
            {parents.map((name) => (
              <Check
                key={name}
                checked={step.dependsOn.includes(name)}
                onChange={(isChosen) =>
                  onChange({
                    dependsOn: isChosen ? [...step.dependsOn, name] : step.dependsOn.filter((one) => one !== name),
                  })
                }
              >
                {name}
              </Check>
            ))}
          </div>
        </div>
      )}
      {step.dependsOn.length === 0 ? null : (
        <SelectField
          label="Runs when"
          field={`tasks.${number - 1}.run_if`}
          value={step.runIf}
          onChange={(value) => onChange({ runIf: value as RunIf })}
          options={RUN_IFS}
        />
      )}
    </fieldset>
  )
}

function TaskChoice({
  domain,
  step,
  onChange,
}: {
  domain: string
  step: Step
  onChange: (changes: Partial<Step>) => void
}) {
  const found = useQuery(
    query('GET /tasks', { query: { domain_id: domain, limit: SHOWN_TASKS, order: 'name', dir: 'asc' } }),
  )
  const known = (found.data?.tasks ?? []).filter((task) => task.module !== undefined || task.image_url !== undefined)
  return (
    <SelectField
      label="Task"
      value={step.task}
      onChange={(id) => {
        const chosen = known.find((task) => task.id === id)
        onChange({
          task: id,
          ...(step.functionName === '' ? { functionName: chosen?.function ?? chosen?.name ?? '' } : {}),
        })
      }}
      options={[['', 'Choose a task'], ...known.map(({ id, name }): [string, string] => [id, name])]}
      hint="The workflow gets a copy of its module as it is now"
    />
  )
}

/** Throws what refuses it; a workflow without its modules is not left behind. */
async function createWorkflow(domain: string, name: string, steps: readonly Step[]): Promise<string> {
  // The modules are read before anything is made: a module that cannot be read makes no workflow.
  const modules = new Map<string, File>()
  const references = new Map<string, string>()
  for (const { name: of, source, file, task } of steps)
    if (source === 'file' && file !== undefined) modules.set(of.trim(), file)
    else if (source === 'task') {
      const { image_url: reference, module } = await call('GET /tasks/{task_id}', { params: { task_id: task } })
      if (reference !== undefined) references.set(of.trim(), reference)
      else if (module !== undefined) modules.set(of.trim(), await moduleFile(module.digest))
    }
  const tasks = tasksOf(steps).map((task) => {
    const reference = references.get(task.name)
    return reference === undefined ? task : { ...task, image_url: reference }
  })
  const workflow = await call('POST /workflows', { body: { name, domain_id: domain, tasks } })
  try {
    for (const task of workflow.tasks) {
      const module = modules.get(task.name)
      if (module !== undefined) await uploadModule(task.id, module)
    }
  } catch (error) {
    await call('DELETE /workflows/{workflow_id}', { params: { workflow_id: workflow.id } }).catch(() => undefined)
    throw error
  }
  return workflow.id
}

async function moduleFile(digest: string): Promise<File> {
  const response = await send('GET /modules/{digest}/content', {
    params: { digest },
    headers: { Accept: 'application/wasm' },
  })
  return new File([await response.blob()], 'module.wasm')
}
