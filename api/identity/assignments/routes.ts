/** Users of domains, groups, channels and clients in the request format of Mainflux and SuperMQ (contract 4.3). */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { RoutePlugin } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import { ASSIGNABLE_DOMAIN, ASSIGNABLE_ENTITIES, targetOf } from './assignable.ts'
import {
  AssignedPage,
  AssignedQuery,
  Assignment,
  ForceQuery,
  Permissions,
  Unassignment,
  presentAssigned,
} from './schema.ts'
import type { AssignmentsService } from './service.ts'

type PathParams = Record<string, string>

const tags = ['assignments']
const KINDS = ['not_found', 'conflict'] as const
const pathParams = (names: readonly string[]) => Type.Object(Object.fromEntries(names.map((name) => [name, Id])))

export function assignmentRoutes(assignments: AssignmentsService): RoutePlugin {
  return (app) => {
    for (const place of ASSIGNABLE_ENTITIES) {
      const { type, path } = place
      const params = pathParams(place.params)
      const isShared = type === 'client'
      app.post(
        `${path}/${place.assign}`,
        {
          config: { action: 'add_role_users' },
          schema: {
            tags,
            summary: isShared ? 'Share a client with users' : `Assign users to a ${type}`,
            description: 'Adds the users to the role of the relation. The role is created on first use.',
            params,
            body: Assignment,
            response: responses({ 201: NoBody }, ...KINDS, 'unprocessable'),
          },
        },
        async (request, reply) => {
          const target = targetOf(place, request.params as PathParams)
          await assignments.assign(request.principal, target, request.body)
          return await reply.code(201).send()
        },
      )
      app.post(
        `${path}/${place.unassign}`,
        {
          config: { action: 'remove_role_users' },
          schema: {
            tags,
            summary: isShared ? 'Stop sharing a client with users' : `Unassign users from a ${type}`,
            description:
              type === 'domain'
                ? 'Without a relation it removes the users from all roles on the domain and on every entity in it.'
                : 'Without a relation it removes the users from all roles on the entity.',
            params,
            querystring: ForceQuery,
            body: Unassignment,
            response: responses({ 204: NoBody }, ...KINDS, 'invalid_state'),
          },
        },
        async (request, reply) => {
          const force = request.query.force === true
          const target = targetOf(place, request.params as PathParams)
          await assignments.unassign(request.principal, target, request.body, { force })
          return await reply.code(204).send()
        },
      )
      app.get(
        `${path}/permissions`,
        {
          config: { action: 'read' },
          schema: {
            tags,
            summary: `List the actions of the caller on a ${type}`,
            params,
            response: responses({ 200: Permissions }, ...KINDS),
          },
        },
        async (request) => {
          const target = targetOf(place, request.params as PathParams)
          return { permissions: await assignments.permissions(request.principal, target) }
        },
      )
    }
    const lists = [...ASSIGNABLE_ENTITIES, { ...ASSIGNABLE_DOMAIN, path: '/:domain_id' }].map((place) => ({
      place,
      word: 'users',
    }))
    // Only groups also have the path `members`.
    lists.push(
      ...ASSIGNABLE_ENTITIES.filter(({ type }) => type === 'group').map((place) => ({ place, word: 'members' })),
    )
    for (const { place, word } of lists) {
      app.get(
        `${place.path}/${word}`,
        {
          config: { action: 'view_role_users' },
          schema: {
            tags,
            summary: `List the users of a ${place.type}`,
            description: `Returns the users with a role on the ${place.type} itself. \`roles/members\` also returns users with inherited roles.`,
            params: pathParams(place.params),
            querystring: AssignedQuery,
            response: responses({ 200: AssignedPage }, ...KINDS),
          },
        },
        async (request) => {
          const target = targetOf(place, request.params as PathParams)
          const page = await assignments.listUsers(request.principal, target, request.query)
          return presentAssigned(request.principal, page, request.query.only_total)
        },
      )
    }
  }
}
