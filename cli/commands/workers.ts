/** `skein workers`. */
import { setTimeout as sleep } from 'node:timers/promises'
import type { Call, Cli, Command, Group } from '../shared/command.ts'
import { secondsOf } from '../shared/duration.ts'
import { renderAnswer } from '../shared/table.ts'
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
    one('drain', 'let a worker finish what it runs, and give it nothing new', {
      method: 'POST',
      path: '/workers/{worker_id}/drain',
    }),
    one('resume', 'give a worker work again', { method: 'POST', path: '/workers/{worker_id}/resume' }),
    one('revoke', 'make the certificate of a worker invalid', { method: 'POST', path: '/workers/{worker_id}/revoke' }),
    one('delete', 'forget a worker', { method: 'DELETE', path: '/workers/{worker_id}' }, { answer: 'ok' }),
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
  const table = renderAnswer(value, { columns: COLUMNS }, process.stdout.columns, cli.output.paint)
  return `${cli.output.paint('bold', head)}\n\n${table}`
}
