/** `skein runs`. */
import type { Group } from '../shared/command.ts'
import { arg } from '../shared/values.ts'
import { printLogs } from './task-logs.ts'
import { STATE_NAMES, stateNumber } from './task-states.ts'
import { RUN_COLUMNS } from './tasks.ts'

export const runs: Group = {
  name: 'runs',
  summary: 'executions of tasks',
  columns: RUN_COLUMNS,
  labels: { state: STATE_NAMES },
  commands: [
    {
      words: 'list',
      args: '',
      tail: 'user',
      summary: `list the runs of all tasks with their causes; --state is ${STATE_NAMES.slice(1).join(', ')}`,
      example: '--state failed',
      flags: ['state', 'from', 'to'],
      call: {
        method: 'GET',
        service: 'manager',
        path: '/runs',
        auth: 'optional',
        query: ['limit', 'offset', 'from', 'to'],
        parameters: ({ flags }) => {
          const state = flags.get('state')
          return state === undefined ? {} : { state: stateNumber(state) }
        },
      },
      columns: ['id', 'task_name', 'state', 'cause.type', 'reason', 'created_at', 'duration_ms'],
    },
    {
      words: 'get all',
      args: '<task_id>',
      tail: 'user',
      summary: 'list the runs of a task',
      example: '<task_id>',
      call: {
        method: 'GET',
        service: 'manager',
        path: '/tasks/{task_id}/runs',
        auth: 'optional',
        query: ['limit', 'offset'],
      },
    },
    {
      words: 'get',
      args: '<task_id> <run_id>',
      tail: 'user',
      summary: 'show a run: worker, attempts, times, result',
      example: '<task_id> <run_id>',
      call: { method: 'GET', service: 'manager', path: '/tasks/{task_id}/runs/{run_id}', auth: 'optional' },
    },
    {
      words: 'logs',
      args: '<task_id> <run_id>',
      tail: 'user',
      summary: 'print the output of a run; -f follows it',
      example: '<task_id> <run_id>',
      flags: ['follow', 'stream'],
      run: (cli, given) => printLogs(cli, given, arg(given, 'task_id'), arg(given, 'run_id')),
    },
  ],
}
