/** `skein tasks run`: creates a task, uploads its module, starts it and prints the result in one command. */
import { existsSync } from 'node:fs'
import { basename } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import { sizeOf } from '../shared/request.ts'
import type { Cli, Reply } from '../shared/command.ts'
import { CommandError, InterruptedError } from '../shared/failures.ts'
import { createProgress, formatBytes } from '../shared/progress.ts'
import { arg, isRecord } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'
import { runFields } from './run-fields.ts'
import { COMPLETED, STATE_NAMES, isOver } from './task-states.ts'

const FIRST_LOOK_MS = 50
/** How long the manager waits for the end of the run before the progress is shown. */
const WAIT = '5s'
const MAX_BETWEEN_LOOKS_MS = 1000
/** A slow connection still sends bytes within this time. */
const UPLOAD_SILENCE_MS = 120_000

export async function uploadTo(cli: Cli, taskId: string, file: string, token: string | undefined): Promise<Reply> {
  const size = sizeOf(file)
  const progress = createProgress(cli.output, `uploading ${basename(file)}`, formatBytes)
  try {
    return await cli.request({
      method: 'PUT',
      service: 'manager',
      path: `/tasks/${encodeURIComponent(taskId)}/upload`,
      file,
      authorization: 'optional',
      token,
      deadlineMs: UPLOAD_SILENCE_MS,
      onSent: (bytes) => progress.at(bytes, size),
    })
  } finally {
    progress.end()
  }
}

export async function runFile(cli: Cli, given: Given): Promise<void> {
  const source = arg(given, 'file|image')
  const { flags, domain, credential: token } = given
  const isFile = existsSync(source)
  if (!isFile && /^\.{0,2}\/|\.wasm$/.test(source)) throw new CommandError(`file ${source} not found`)
  const timeout = flags.get('timeout')
  const created = await cli.request({
    method: 'POST',
    service: 'manager',
    path: '/tasks',
    authorization: 'optional',
    token,
    json: {
      ...(domain === undefined ? {} : { domain_id: domain }),
      name: flags.get('name') ?? nameOf(source),
      ...runFields(given),
      ...(flags.get('function') === undefined ? {} : { function: flags.get('function') }),
      ...(timeout === undefined ? {} : { timeout }),
      ...(isFile ? {} : { image_url: source }),
    },
  })
  const taskId = String(isRecord(created.value) ? created.value['id'] : '')
  const path = `/tasks/${encodeURIComponent(taskId)}`
  const common = { service: 'manager', authorization: 'optional', token } as const
  let hasStarted = false
  // The caller has not seen the id of this task. An interrupted command sends no more requests.
  const removeUnstarted = () =>
    cli.request({ method: 'DELETE', path, ...common }).catch(() => {
      cli.output.note(`the task was created but not started; delete it: skein tasks delete ${taskId}`)
    })
  try {
    if (isFile) await uploadTo(cli, taskId, source, token)
    const started = await cli.request({ method: 'POST', path: `${path}/start`, ...common })
    hasStarted = true
    if (!flags.has('wait')) {
      cli.output.data({ task_id: taskId, ...(isRecord(started.value) ? started.value : {}) })
      return
    }
    const result = await resultOf(cli, taskId, token)
    cli.output.data({ task_id: taskId, ...result }, { labels: { state: STATE_NAMES } })
    if (result['state'] !== COMPLETED) {
      process.exitCode = 1
      const reason = [result['reason'], result['error']].filter((part) => typeof part === 'string' && part !== '')
      cli.output.error(
        `the task is ${STATE_NAMES[Number(result['state'])] ?? 'in an unknown state'}${reason.length > 0 ? `: ${reason.join(': ')}` : ''}`,
        `skein tasks logs ${taskId}`,
      )
    }
  } catch (error) {
    if (error instanceof InterruptedError && hasStarted)
      throw new InterruptedError(
        `interrupted; the task continues: skein tasks results ${taskId}, skein tasks stop ${taskId}`,
      )
    if (!hasStarted) await removeUnstarted()
    throw error
  }
  if (flags.has('rm')) await cli.request({ method: 'DELETE', path, query: { force: 'true' }, ...common })
}

/** `add` of `./add.wasm`, `add` of `ghcr.io/org/add:1`. */
function nameOf(source: string): string {
  const [name = ''] = basename(source)
    .replace(/\.wasm$/, '')
    .split(/[:@]/, 1)
  return name
}

/** Waits at the manager until the task ends. */
async function resultOf(cli: Cli, taskId: string, token: string | undefined): Promise<Record<string, unknown>> {
  const progress = createProgress(cli.output, `task ${taskId}`)
  const common = { service: 'manager', authorization: 'optional', token } as const
  const begin = performance.now()
  let waitMs = FIRST_LOOK_MS
  try {
    for (;;) {
      const { value } = await cli.request({
        method: 'GET',
        path: `/tasks/${encodeURIComponent(taskId)}/results`,
        ...common,
      })
      const result = isRecord(value) ? value : {}
      const state = Number(result['state'])
      if (isOver(state)) return result
      progress.say(`is ${STATE_NAMES[state] ?? state}, ${Math.round((performance.now() - begin) / 1000)} s`)
      const asked = performance.now()
      await cli.request({
        method: 'GET',
        path: `/tasks/${encodeURIComponent(taskId)}`,
        query: { wait: WAIT },
        ...common,
      })
      // An older manager answers at once.
      if (performance.now() - asked > waitMs) continue
      await sleep(waitMs, undefined, { signal: cli.signal }).catch(() => {
        throw new InterruptedError('interrupted')
      })
      waitMs = Math.min(waitMs * 2, MAX_BETWEEN_LOOKS_MS)
    }
  } finally {
    progress.end()
  }
}
