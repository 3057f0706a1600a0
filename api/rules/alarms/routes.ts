/** Routes of alarms. */
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import {
  AlarmBulkUpdate,
  AlarmHistoryPage,
  AlarmHistoryQuery,
  AlarmList,
  AlarmPage,
  AlarmQuery,
  AlarmUpdate,
  AlarmView,
  presentAlarm,
  presentChange,
} from './schema.ts'
import type { AlarmsService } from './service.ts'

const tags = ['alarms']
const PATH = '/:domain_id/alarms'
const ONE = `${PATH}/:alarm_id`
const inDomain = Type.Object({ domain_id: Id })
const params = Type.Object({ domain_id: Id, alarm_id: Id })

type App = Parameters<RoutePlugin>[0]

export function alarmRoutes(alarms: AlarmsService): RoutePlugin {
  return (app) => {
    manyAlarms(app, alarms)
    oneAlarm(app, alarms)
    alarmEnds(app, alarms)
  }
}

function manyAlarms(app: App, alarms: AlarmsService): void {
  app.get(
    PATH,
    {
      config: { action: 'alarm_read' },
      schema: {
        tags,
        summary: 'List alarms, the newest first',
        params: inDomain,
        querystring: AlarmQuery,
        response: responses({ 200: AlarmPage }),
      },
    },
    async ({ principal, params: { domain_id: domainId }, query }) => {
      const { items, ...page } = await alarms.list(principal, domainId, query)
      return { ...page, alarms: items.map((one) => presentAlarm(one, domainId)) }
    },
  )
  app.post(
    `${PATH}/bulk`,
    {
      config: { action: 'alarm_update' },
      schema: {
        tags,
        summary: 'Change alarms: all of them, or none',
        params: inDomain,
        body: AlarmBulkUpdate,
        response: responses({ 200: AlarmList }, 'not_found', 'conflict'),
      },
    },
    async ({ principal, params: { domain_id: domainId }, body }) => ({
      alarms: (await alarms.updateMany(principal, domainId, body)).map((one) => presentAlarm(one, domainId)),
    }),
  )
}

function oneAlarm(app: App, alarms: AlarmsService): void {
  app.get(
    ONE,
    {
      config: { action: 'alarm_read' },
      schema: { tags, summary: 'View an alarm', params, response: responses({ 200: AlarmView }, 'not_found') },
    },
    async ({ principal, params: { domain_id: domainId, alarm_id: id } }) =>
      presentAlarm(await alarms.get(principal, domainId, id), domainId),
  )
  app.patch(
    ONE,
    {
      config: { action: 'alarm_update' },
      schema: {
        tags,
        summary: 'Acknowledge, assign, comment or clear an alarm',
        description:
          'A condition that holds on after its alarm was cleared by hand raises a new alarm with the next message, after `for` again.',
        params,
        body: AlarmUpdate,
        response: responses({ 200: AlarmView }, 'not_found', 'conflict'),
      },
    },
    async ({ principal, params: { domain_id: domainId, alarm_id: id }, body }) =>
      presentAlarm(await alarms.update(principal, domainId, id, body), domainId),
  )
}

function alarmEnds(app: App, alarms: AlarmsService): void {
  app.delete(
    ONE,
    {
      config: { action: 'alarm_delete' },
      schema: {
        tags,
        summary: 'Delete an alarm and its history',
        params,
        response: responses({ 204: NoBody }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, alarm_id: id } }, reply) => {
      await alarms.remove(principal, domainId, id)
      return await reply.code(204).send()
    },
  )
  app.get(
    `${ONE}/history`,
    {
      config: { action: 'alarm_read' },
      schema: {
        tags,
        summary: 'What was done with an alarm, the oldest first',
        params,
        querystring: AlarmHistoryQuery,
        response: responses({ 200: AlarmHistoryPage }, 'not_found'),
      },
    },
    async ({ principal, params: { domain_id: domainId, alarm_id: id }, query }) => {
      const { items, ...page } = await alarms.history(principal, domainId, id, query)
      return { ...page, history: items.map(presentChange) }
    },
  )
}
