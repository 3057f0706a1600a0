/** `/jobs` of Propeller: workflows in the shapes of its Go client (contract, decision 63). */
import { Type } from 'typebox'
import type { Static } from 'typebox'
import { refusedField } from '#core/errors/index.ts'
import { responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { MAX_PAGE_BYTES, pageFields, pageQuery } from '#core/page.ts'
import { ZERO_TIME } from '#core/time.ts'
import { TASK_STATE } from '#proto/index.ts'
import { BEARER } from '../access/callers.ts'
import type { Callers } from '../access/callers.ts'
import { TASK_BODY_BYTES } from '../tasks/legacy-fields.ts'
import { ListedTask, TaskId, Timestamp } from '../tasks/schema.ts'
import { newerWorkflow } from './legacy-fields.ts'
import { NewWorkflow } from './schema.ts'
import type { Workflow, WorkflowTask } from './schema.ts'
import type { WorkflowsService } from './service.ts'

const tags = ['workflows']
const PAGE_LIMIT = 100
const Params = Type.Object({ job_id: TaskId })

const { pending, scheduled, running, completed, failed, stopped, unknown } = TASK_STATE
/** The states of Skein for the four of a job. */
const STATES = {
  pending: [pending],
  running: [scheduled, running, unknown],
  completed: [completed],
  failed: [failed, stopped],
} as const

const NewJob = Type.Object(
  {
    ...NewWorkflow.properties,
    execution_mode: Type.Optional(
      Type.String({
        maxLength: 32,
        description:
          '`parallel` (the default): all tasks at once; `sequential`: one after the other; `configurable`: as `depends_on` says',
      }),
    ),
  },
  { $id: 'JobCreate' },
)

const Job = Type.Object(
  {
    job_id: TaskId,
    name: Type.String(),
    state: Type.Integer({ description: 'State of the newest run, as of a task; 0: never started' }),
    tasks: Type.Array(ListedTask),
    start_time: Timestamp,
    finish_time: Timestamp,
    created_at: Timestamp,
  },
  { $id: 'Job', description: 'Workflow in the shape of Propeller' },
)
type Job = Static<typeof Job>

const JobQuery = Type.Object({
  ...pageQuery({ limit: PAGE_LIMIT, maxLimit: PAGE_LIMIT }),
  status: Type.Optional(Type.Enum(['pending', 'running', 'completed', 'failed'])),
})

function presentJob({ id, name, state, tasks, created_at, run }: Workflow): Job {
  const [start_time, finish_time] = [run?.created_at ?? ZERO_TIME, run?.finished_at ?? ZERO_TIME]
  return { job_id: id, name, state, tasks, start_time, finish_time, created_at }
}

/** The tasks with the dependencies that the mode says. Throws `malformed` for an unknown mode. */
function inMode(tasks: readonly WorkflowTask[], mode: string): WorkflowTask[] {
  const named = withOwnNames(tasks)
  switch (mode) {
    case '':
    case 'parallel':
      return named.map((task) => ({ ...task, depends_on: [] }))
    case 'sequential':
      return named.map((task, index) => ({ ...task, depends_on: index === 0 ? [] : [named[index - 1]?.name ?? ''] }))
    case 'configurable':
      return named
    default:
      throw refusedField('/execution_mode', 'must be one of parallel, sequential, configurable')
  }
}

/** Tasks of a job may share a name, which is their function; those of a workflow have names of their own. */
function withOwnNames(tasks: readonly WorkflowTask[]): WorkflowTask[] {
  const taken = new Set<string>()
  return tasks.map((task) => {
    let { name } = task
    for (let number = 2; taken.has(name); number += 1) name = `${task.name}-${number}`
    taken.add(name)
    return name === task.name ? task : { ...task, name, function: task.function ?? task.name }
  })
}

export function jobRoutes({ workflows, callers }: { workflows: WorkflowsService; callers: Callers }): RoutePlugin {
  const { onRequest } = callers
  const config = (action: string) => ({ action, ownCredentials: BEARER })
  return (app) => {
    app.post(
      '/jobs',
      {
        onRequest,
        bodyLimit: TASK_BODY_BYTES,
        config: { ...config('task_create'), location: '/jobs/{job_id}', maxWholeBytes: TASK_BODY_BYTES },
        schema: {
          tags,
          summary: 'Create a workflow in the shape of a job',
          body: NewJob,
          response: responses({ 201: Job }, 'unprocessable', 'rate_limited', 'timeout'),
        },
      },
      async (request, reply) => {
        const { execution_mode: mode = '', tasks, ...body } = request.body
        const { workflow, files } = newerWorkflow({ ...body, tasks: inMode(tasks, mode) })
        const job = presentJob(await workflows.create(callers.of(request), workflow, files))
        void reply.code(201).header('Location', `/jobs/${job.job_id}`)
        return job
      },
    )
    app.get(
      '/jobs',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'List workflows in the shape of jobs',
          querystring: JobQuery,
          response: responses({ 200: Type.Object({ ...pageFields, jobs: Type.Array(Job) }) }),
        },
      },
      async (request) => {
        const { offset, limit, cursor, status } = request.query
        const caller = callers.of(request)
        const states = status === undefined ? undefined : STATES[status]
        const page = await workflows.list(caller, { offset, limit, cursor, states })
        const jobs: Job[] = []
        const places: string[] = []
        let bytes = 0
        for (const [index, { id }] of page.workflows.entries()) {
          const workflow = await workflows.find(caller, id)
          // It was deleted after the page was read.
          if (workflow === undefined) continue
          const job = presentJob(workflow)
          bytes += JSON.stringify(job).length
          if (jobs.length > 0 && bytes > MAX_PAGE_BYTES) break
          jobs.push(job)
          places.push(page.next.places[index] as string)
        }
        const isCut = bytes > MAX_PAGE_BYTES
        // Without a job, the next page begins after the deleted ones.
        const next = jobs.length === 0 ? page.next : { places, hasMore: isCut || page.next.hasMore }
        return { offset, limit: isCut ? jobs.length : limit, total: page.total, jobs, next }
      },
    )
    app.get(
      '/jobs/:job_id',
      {
        onRequest,
        config: config('task_read'),
        schema: {
          tags,
          summary: 'View a workflow in the shape of a job',
          params: Params,
          response: responses({ 200: Job }, 'not_found'),
        },
      },
      async (request) => presentJob(await workflows.get(callers.of(request), request.params.job_id)),
    )
    app.post(
      '/jobs/:job_id/start',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Start a job',
          params: Params,
          response: responses(
            { 200: Type.Object({ job_id: TaskId, started: Type.Boolean(), run_id: TaskId }) },
            'not_found',
            'invalid_state',
          ),
        },
      },
      async (request) => {
        const { job_id } = request.params
        const { runId } = await workflows.start(callers.of(request), job_id)
        return { job_id, started: true, run_id: runId }
      },
    )
    app.post(
      '/jobs/:job_id/stop',
      {
        onRequest,
        config: config('task_start'),
        schema: {
          tags,
          summary: 'Stop a job',
          params: Params,
          response: responses({ 200: Type.Object({ job_id: TaskId, stopped: Type.Boolean() }) }, 'not_found'),
        },
      },
      async (request) => {
        const { job_id } = request.params
        await workflows.stop(callers.of(request), job_id)
        return { job_id, stopped: true }
      },
    )
  }
}
