/** `skein workflows`. */
import { LISTING } from '../shared/command.ts'
import type { Group } from '../shared/command.ts'
import { jsonObject } from '../shared/values.ts'
import { STATE_NAMES } from './task-states.ts'

const SERVICE = 'manager'

export const workflows: Group = {
  name: 'workflows',
  summary: 'tasks that depend on each other',
  columns: ['id', 'name', 'state', 'created_at', 'updated_at'],
  labels: { state: STATE_NAMES },
  commands: [
    {
      words: 'create',
      args: '<JSON_workflow>',
      tail: 'user',
      summary: 'create a workflow: tasks with depends_on and run_if',
      example: '@workflow.json',
      call: {
        method: 'POST',
        service: SERVICE,
        path: '/workflows',
        auth: 'optional',
        body: (given) => ({
          ...(given.domain === undefined ? {} : { domain_id: given.domain }),
          ...jsonObject(given, 'JSON_workflow'),
        }),
      },
    },
    {
      words: 'get all',
      args: '',
      tail: 'user',
      summary: 'list workflows',
      example: '',
      call: { method: 'GET', service: SERVICE, path: '/workflows', auth: 'optional', query: LISTING },
    },
    {
      words: 'get',
      args: '<workflow_id>',
      tail: 'user',
      summary: 'show a workflow and the states of its tasks',
      example: '<workflow_id>',
      call: { method: 'GET', service: SERVICE, path: '/workflows/{workflow_id}', auth: 'optional' },
    },
    {
      words: 'delete',
      args: '<workflow_id>',
      tail: 'user',
      summary: 'delete a workflow and its tasks',
      example: '<workflow_id>',
      answer: 'ok',
      flags: ['dry-run'],
      call: {
        method: 'DELETE',
        service: SERVICE,
        path: '/workflows/{workflow_id}',
        query: ['dry-run'],
        auth: 'optional',
      },
    },
    {
      words: 'start',
      args: '<workflow_id>',
      tail: 'user',
      summary: 'start a workflow',
      example: '<workflow_id>',
      call: { method: 'POST', service: SERVICE, path: '/workflows/{workflow_id}/start', auth: 'optional' },
    },
    {
      words: 'stop',
      args: '<workflow_id>',
      tail: 'user',
      summary: 'stop a workflow and its tasks',
      example: '<workflow_id>',
      call: { method: 'POST', service: SERVICE, path: '/workflows/{workflow_id}/stop', auth: 'optional' },
    },
  ],
}
