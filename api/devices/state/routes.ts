/** Routes of the states of devices for users. Those of devices are in the HTTP adapter. */
import type { FastifyReply } from 'fastify'
import { Type } from 'typebox'
import { Id } from '#api/identity/index.ts'
import { refusedField } from '#core/errors/index.ts'
import { MERGE_PATCH_TYPE, NoBody, acceptMergePatches, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { addressOf, entitySchema } from '../connectable/index.ts'
import { entityPaths } from '../connectable/schema.ts'
import type { EntityPath } from '../connectable/schema.ts'
import { parseIfMatch } from './changes.ts'
import {
  DeviceState,
  DeviceStates,
  IfMatch,
  SelectionQuery,
  StateBody,
  StateChanges,
  StateConflict,
  StateName,
  StateProgressAnswer,
  WaitQuery,
  presentProgress,
  presentState,
  presentStates,
} from './schema.ts'
import type { DeviceStatesService } from './service.ts'

const tags = ['states']
const PATCH_TYPES = ['application/json', MERGE_PATCH_TYPE] as const
const inDomain = Type.Object({ domain_id: Id })

export function stateRoutes(states: DeviceStatesService): RoutePlugin {
  return async (app) => {
    await app.register((scope: HttpApp, _options, done) => {
      acceptMergePatches(scope)
      addSelectionRoutes(scope, states)
      for (const path of entityPaths('client')) {
        addList(scope, states, path)
        for (const isNamed of [false, true]) {
          addView(scope, states, path, isNamed)
          addChanges(scope, states, path, isNamed)
          addRemoval(scope, states, path, isNamed)
        }
      }
      done()
    })
  }
}

/** The path of a document, with its name or of the one without. */
function documentPath({ base, params, isScoped }: EntityPath, isNamed: boolean): EntityPath {
  return isNamed
    ? { base: `${base}/desired-state/:name`, params: Type.Object({ ...params.properties, name: StateName }), isScoped }
    : { base: `${base}/desired-state`, params, isScoped }
}

/** Aborted when the caller has gone. */
function goneSignal(reply: FastifyReply): AbortSignal {
  const gone = new AbortController()
  reply.raw.once('close', () => gone.abort())
  return gone.signal
}

const nameIn = (params: unknown) => (params as { name?: string }).name
const which = (isNamed: boolean) => (isNamed ? 'a named document of the state' : 'the state')

function addList(app: HttpApp, states: DeviceStatesService, path: EntityPath): void {
  app.get(
    `${path.base}/desired-states`,
    {
      config: { action: 'state_read' },
      schema: entitySchema(path, {
        tags,
        summary: 'List the documents of the state of a client',
        successes: { 200: DeviceStates },
      }),
    },
    async ({ principal, params }) => presentStates(await states.list(principal, addressOf('client', params))),
  )
}

function addView(app: HttpApp, states: DeviceStatesService, of: EntityPath, isNamed: boolean): void {
  const path = documentPath(of, isNamed)
  app.get(
    path.base,
    {
      config: { action: 'state_read' },
      schema: {
        ...entitySchema(path, {
          tags,
          summary: `View ${which(isNamed)} of a client`,
          description:
            'What is desired, what is reported, and the part of the first that the second does not equal. With `wait`, the response follows a change: when the document has another version than `version`, or after the wait.',
          successes: { 200: DeviceState },
          kinds: ['rate_limited'],
        }),
        querystring: WaitQuery,
      },
    },
    async ({ principal, params, query }, reply) => {
      const { wait, version } = query
      const waiting = wait === undefined ? undefined : { wait, version, signal: goneSignal(reply as never) }
      return presentState(await states.get(principal, addressOf('client', params), nameIn(params), waiting))
    },
  )
}

function addChanges(app: HttpApp, states: DeviceStatesService, of: EntityPath, isNamed: boolean): void {
  const path = documentPath(of, isNamed)
  for (const [method, kind, summary] of [
    ['PATCH', 'patch', `Change what is desired in ${which(isNamed)} of a client`],
    ['PUT', 'replace', `Replace what is desired in ${which(isNamed)} of a client`],
  ] as const) {
    app.route({
      method,
      url: path.base,
      config: { action: 'state_update', dryRun: true },
      schema: {
        ...entitySchema(path, {
          tags,
          summary,
          description: `${kind === 'patch' ? 'The body is a JSON merge patch (RFC 7396): null removes a field.' : 'Fields that are null are left out.'} The device receives the new difference at once, or when it connects.`,
          successes: { 200: DeviceState, 412: StateConflict },
          kinds: ['unprocessable'],
        }),
        headers: IfMatch,
        consumes: kind === 'patch' ? [...PATCH_TYPES] : ['application/json'],
        body: StateBody,
      },
      handler: async ({ principal, params, body, headers }) =>
        presentState(
          await states.change(principal, addressOf('client', params), nameIn(params), {
            change: { kind, body },
            ifMatch: parseIfMatch(headers['if-match']),
          }),
        ),
    })
  }
}

function addRemoval(app: HttpApp, states: DeviceStatesService, of: EntityPath, isNamed: boolean): void {
  const path = documentPath(of, isNamed)
  app.delete(
    path.base,
    {
      config: { action: 'state_update', dryRun: true },
      schema: {
        ...entitySchema(path, {
          tags,
          summary: `Delete ${which(isNamed)} of a client, both sides of it`,
          description: 'The device receives nothing. Versions of a document that is created again are higher.',
          successes: { 204: NoBody, 412: StateConflict },
        }),
        headers: IfMatch,
      },
    },
    async ({ principal, params, headers }, reply) => {
      await states.remove(principal, addressOf('client', params), nameIn(params), parseIfMatch(headers['if-match']))
      return await reply.code(204).send()
    },
  )
}

/** Routes of many clients: those with a tag, or in a group. */
function addSelectionRoutes(app: HttpApp, states: DeviceStatesService): void {
  app.patch(
    '/:domain_id/clients/desired-state',
    {
      config: { action: 'client_state_update', dryRun: true },
      schema: {
        tags,
        summary: 'Change what is desired of the clients with a tag or in a group, all or none',
        description:
          'Merges the body into what is desired of each. Clients on which the caller lacks `state_update` are not selected. At most 10,000 clients.',
        params: inDomain,
        querystring: SelectionQuery,
        consumes: [...PATCH_TYPES],
        body: StateBody,
        response: responses({ 200: StateChanges }, 'unprocessable'),
      },
    },
    async ({ principal, params, query, body, headers }) => {
      // Each document has its own version. Without this, the caller would believe that none has changed meanwhile.
      if (headers['if-match'] !== undefined)
        throw refusedField('if-match', 'is for one document: it is not accepted with tag or group')
      return await states.changeMany(principal, params.domain_id, query, body)
    },
  )
  app.get(
    '/:domain_id/clients/desired-state',
    {
      config: { action: 'client_state_read' },
      schema: {
        tags,
        summary: 'Count how far the clients with a tag or in a group are with what is desired',
        params: inDomain,
        querystring: SelectionQuery,
        response: responses({ 200: StateProgressAnswer }),
      },
    },
    async ({ principal, params, query }) => presentProgress(await states.progress(principal, params.domain_id, query)),
  )
}
