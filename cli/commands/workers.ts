/** `skein workers`. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Call, Cli, Command, Group } from '../shared/command.ts'
import { secondsOf } from '../shared/duration.ts'
import { renderResponse } from '../shared/table.ts'
import { isRecord } from '../shared/values.ts'
import type { Given } from '../shared/values.ts'

const COLUMNS = ['id', 'name', 'state', 'alive', 'task_count', 'slots', 'free_slots', 'version', 'last_alive_at']
const REDRAW = '2s'
const MIN_REDRAW_S = 0.2

function one(
  words: string,
  summary: string,
  call: Partial<Call> & { path: string },
  more: Partial<Command> = {},
): Command {
  return {
    words,
    args: '<worker_id>',
    tail: 'user',
    summary,
    example: '<worker_id>',
    ...more,
    call: { method: 'GET', service: 'manager', auth: 'optional', ...call },
  }
}

export const workers: Group = {
  name: 'workers',
  summary: 'nodes that run tasks',
  description: 'A name stands for the id of a worker, unless several workers have it.',
  columns: COLUMNS,
  commands: [
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list workers; --status alive, dead or draining',
      example: '--status alive',
      flags: ['label'],
      call: {
        method: 'GET',
        service: 'manager',
        path: '/workers',
        auth: 'optional',
        query: ['limit', 'offset', 'status', 'label'],
      },
      hintOf: hintOfSharedNames,
    },
    one('get', 'show a worker', { path: '/workers/{worker_id}' }),
    {
      words: 'top',
      args: '',
      tail: 'user',
      summary: 'watch the workers until interrupted',
      example: '--interval 1s',
      flags: ['interval'],
      run: top,
    },
    one('drain', 'drain a worker: it finishes its runs and gets no new ones', {
      method: 'POST',
      path: '/workers/{worker_id}/drain',
    }),
    one('resume', 'resume a drained worker', { method: 'POST', path: '/workers/{worker_id}/resume' }),
    one('revoke', 'revoke the certificate of a worker', { method: 'POST', path: '/workers/{worker_id}/revoke' }),
    one('delete', 'delete a worker', { method: 'DELETE', path: '/workers/{worker_id}' }, { answer: 'ok' }),
    {
      words: 'token create',
      args: '',
      tail: 'domain',
      summary: 'issue a join token for workers of a domain; shown once',
      example: '',
      call: {
        method: 'POST',
        service: 'manager',
        path: '/workers/tokens',
        auth: 'optional',
        body: ({ domain }) => (domain === undefined ? {} : { domain_id: domain }),
      },
    },
  ],
}

/** Names that several workers of the page have, with their ids. */
export function hintOfSharedNames(answer: unknown): string | undefined {
  const found = isRecord(answer) && Array.isArray(answer['workers']) ? answer['workers'].filter(isRecord) : []
  const shared = [...Map.groupBy(found, (worker) => String(worker['name']))].filter(([, workers]) => workers.length > 1)
  if (shared.length === 0) return undefined
  const sentences = shared.map(
    ([name, workers]) =>
      `${workers.length} workers are named ${name} (${workers.map(({ id }) => String(id)).join(', ')})`,
  )
  return `${sentences.join('; ')}: give each its own name with SKEIN_WORKER_NAME`
}

async function top(cli: Cli, given: Given): Promise<void> {
  const everyMs = Math.max(secondsOf(given.flags.get('interval') ?? REDRAW, '--interval'), MIN_REDRAW_S) * 1000
  while (!cli.signal.aborted) {
    const { value } = await cli.request({
      method: 'GET',
      service: 'manager',
      path: '/workers',
      query: { limit: '100' },
      authorization: 'optional',
      token: given.credential,
    })
    cli.output.screen(value, () => screenOf(cli, value))
    await sleep(everyMs, undefined, { signal: cli.signal }).catch(() => undefined)
  }
}

/** The whole screen, from its upper left corner. */
function screenOf(cli: Cli, value: unknown): string {
  const found = isRecord(value) && Array.isArray(value['workers']) ? value['workers'].filter(isRecord) : []
  const sum = (key: string) => found.reduce((total, worker) => total + Number(worker[key] ?? 0), 0)
  const alive = found.filter((worker) => worker['alive'] === true).length
  const head = `${alive} of ${found.length} workers alive, ${sum('task_count')} tasks running, ${sum('free_slots')} of ${sum('slots')} slots free`
  const table = renderResponse(value, { columns: COLUMNS }, process.stdout.columns, cli.output.paint)
  return `${cli.output.paint('bold', head)}\n\n${table}`
}
