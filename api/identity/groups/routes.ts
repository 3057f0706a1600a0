/** Group routes, below the domain and without it (specification section 4 Groups, contract section 3, decision 31b). */
import { Type } from 'typebox'
import { NoBody, responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import type { Page } from '#core/page.ts'
import { Id } from '../wire/index.ts'
import {
  Group,
  GroupPage,
  GroupQuery,
  GroupUpdate,
  GroupView,
  NewGroup,
  TagsUpdate,
  ViewQuery,
  presentGroup,
  presentListed,
} from './schema.ts'
import type { GroupsService, ListedGroup, WithAccess } from './service.ts'
import { nest, presentTree } from './tree.ts'

/** A group is named below its domain, or by its id alone wherever the caller reaches it. */
export const GROUP_PATHS = [
  { base: '/:domain_id/groups/:group_id', params: Type.Object({ domain_id: Id, group_id: Id }) },
  { base: '/groups/:group_id', params: Type.Object({ group_id: Id }) },
] as const
const COLLECTION_PATHS = [
  { base: '/:domain_id/groups', params: Type.Object({ domain_id: Id }) },
  { base: '/groups', params: Type.Object({}) },
] as const
const tags = ['groups']

/** What a path says of the group. */
export function addressOf(params: unknown): { domainId: string | undefined; id: string } {
  const { domain_id: domainId, group_id: id } = params as { domain_id?: string; group_id: string }
  return { domainId, id }
}

/** The page as its query wants it: flat, nested, or only counted. */
export function presentPage(
  page: Page<WithAccess<ListedGroup>>,
  query: { tree?: boolean; only_total?: boolean },
): GroupPage {
  const { total, offset, limit, items } = page
  if (query.only_total === true) return { total, groups: [] }
  const groups = query.tree === true ? presentTree(nest(items), presentListed) : items.map(presentListed)
  return { total, offset, limit, groups }
}

export function groupRoutes(groups: GroupsService): RoutePlugin {
  return (app) => {
    for (const path of COLLECTION_PATHS) {
      addCollectionRoutes(app, groups, path)
    }
    for (const path of GROUP_PATHS) {
      addGroupRoutes(app, groups, path)
    }
  }
}

/** Creating and listing groups. */
function addCollectionRoutes(
  app: HttpApp,
  groups: GroupsService,
  { base, params }: (typeof COLLECTION_PATHS)[number],
): void {
  app.post(
    base,
    {
      config: { action: 'group_create', location: '/groups/{id}' },
      schema: {
        tags,
        summary: 'Create a group',
        description:
          'With `parent_id` below that group, which needs `subgroup_create` or `set_child` on it. Without a domain in the path: in the only domain of the caller or of his token.',
        params,
        body: NewGroup,
        response: responses(
          { 201: Group },
          'unauthenticated',
          'forbidden',
          'unprocessable',
          'unsupported_media_type',
          'too_large',
        ),
      },
    },
    async (request, reply) => {
      const { domain_id: domainId } = request.params as { domain_id?: string }
      const group = await groups.create(request.principal, domainId, request.body)
      void reply.code(201).header('Location', `/groups/${group.id}`)
      return presentGroup(group)
    },
  )
  app.get(
    base,
    {
      config: { action: 'group_read' },
      schema: {
        tags,
        summary: 'List groups',
        description: 'The groups that the caller may read; without a domain in the path those of all his domains.',
        params,
        querystring: GroupQuery,
        response: responses({ 200: GroupPage }, 'unauthenticated', 'forbidden', 'unprocessable'),
      },
    },
    async (request) => {
      const { domain_id: domainId } = request.params as { domain_id?: string }
      return presentPage(await groups.list(request.principal, domainId, request.query), request.query)
    },
  )
}

/** On one group. */
function addGroupRoutes(app: HttpApp, groups: GroupsService, { base, params }: (typeof GROUP_PATHS)[number]): void {
  app.get(
    base,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'View a group',
        params,
        querystring: ViewQuery,
        response: responses({ 200: GroupView }, 'unauthenticated', 'forbidden', 'not_found', 'conflict'),
      },
    },
    async (request) => {
      const { query } = request
      const { group, roles } = await groups.get(request.principal, addressOf(request.params), query.roles === true)
      return { ...presentListed(group), ...roles }
    },
  )
  app.route({
    // Newer clients send PUT, and every other resource takes PATCH: one rule for both (decision 2).
    method: ['PUT', 'PATCH'],
    url: base,
    config: { action: 'update' },
    schema: {
      tags,
      summary: 'Change a group; absent fields stay',
      description: '`description: null` clears it. Where the group stands is changed by `/parent` and `/children`.',
      params,
      body: GroupUpdate,
      response: responses(
        { 200: Group },
        'unauthenticated',
        'forbidden',
        'not_found',
        'conflict',
        'unsupported_media_type',
        'too_large',
      ),
    },
    handler: async (request) =>
      presentGroup(await groups.update(request.principal, addressOf(request.params), request.body)),
  })
  app.patch(
    `${base}/tags`,
    {
      config: { action: 'update' },
      schema: {
        tags,
        summary: 'Replace the tags; none clears them',
        params,
        body: TagsUpdate,
        response: responses(
          { 200: Group },
          'unauthenticated',
          'forbidden',
          'not_found',
          'conflict',
          'unsupported_media_type',
          'too_large',
        ),
      },
    },
    async (request) =>
      presentGroup(
        await groups.update(request.principal, addressOf(request.params), { tags: request.body.tags ?? [] }),
      ),
  )
  for (const [verb, status, effect] of [
    ['enable', 'enabled', 'It can be made a parent again.'],
    ['disable', 'disabled', 'It cannot be made a parent; what is below it keeps its own status.'],
  ] as const) {
    app.post(
      `${base}/${verb}`,
      {
        config: { action: 'update' },
        schema: {
          tags,
          summary: `${verb === 'enable' ? 'Enable' : 'Disable'} a group`,
          description: `${effect} Repeating it changes nothing.`,
          params,
          response: responses({ 200: Group }, 'unauthenticated', 'forbidden', 'not_found', 'conflict'),
        },
      },
      async (request) => presentGroup(await groups.setStatus(request.principal, addressOf(request.params), status)),
    )
  }
  app.delete(
    base,
    {
      config: { action: 'delete' },
      schema: {
        tags,
        summary: 'Delete a group and its roles',
        description: 'Groups below it become roots, its clients and channels lose their parent.',
        params,
        response: responses({ 204: NoBody }, 'unauthenticated', 'forbidden', 'not_found', 'conflict'),
      },
    },
    async (request, reply) => {
      await groups.remove(request.principal, addressOf(request.params))
      return await reply.code(204).send()
    },
  )
}
