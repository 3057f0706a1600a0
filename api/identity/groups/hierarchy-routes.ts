/** Routes of the hierarchy of groups (contract section 3, decision 26), below the domain and without it. */
import { NoBody, responses } from '#core/http/index.ts'
import type { HttpApp, RoutePlugin } from '#core/http/index.ts'
import type { GroupHierarchyService } from './hierarchy.ts'
import type { MovesService } from './moves.ts'
import { GROUP_PATHS, addressOf, presentPage } from './routes.ts'
import {
  ChildrenQuery,
  ChildrenUpdate,
  GroupPage,
  Hierarchy,
  HierarchyQuery,
  ParentUpdate,
  ParentsQuery,
  presentHierarchical,
} from './schema.ts'
import { nest, presentTree } from './tree.ts'

const tags = ['groups']

export function hierarchyRoutes(hierarchy: GroupHierarchyService, moves: MovesService): RoutePlugin {
  return (app) => {
    for (const path of GROUP_PATHS) {
      addListRoutes(app, hierarchy, path)
      addParentRoutes(app, moves, path)
      addChildrenRoutes(app, moves, path)
    }
  }
}

/** What is above and below a group. */
function addListRoutes(
  app: HttpApp,
  hierarchy: GroupHierarchyService,
  { base, params }: (typeof GROUP_PATHS)[number],
): void {
  app.get(
    `${base}/hierarchy`,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'View what is above or below a group',
        description:
          'The group included, level counted from the root. Groups that the caller may not read show their level alone.',
        params,
        querystring: HierarchyQuery,
        response: responses(
          { 200: Hierarchy },
          'unauthenticated',
          'forbidden',
          'not_found',
          'conflict',
          'unprocessable',
        ),
      },
    },
    async (request) => {
      const { level, dir: direction, tree } = request.query
      const kin = await hierarchy.hierarchy(request.principal, addressOf(request.params), request.query)
      const groups = tree === true ? presentTree(nest(kin), presentHierarchical) : kin.map(presentHierarchical)
      return { level, direction, groups }
    },
  )
  app.get(
    `${base}/parents`,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'List the groups above a group',
        description:
          'Level -1 is its parent. With `tree=true` the uppermost holds the next one in `children`, and so on.',
        params,
        querystring: ParentsQuery,
        response: responses({ 200: GroupPage }, 'unauthenticated', 'forbidden', 'not_found', 'conflict'),
      },
    },
    async (request) =>
      presentPage(await hierarchy.parents(request.principal, addressOf(request.params), request.query), request.query),
  )
  app.get(
    `${base}/children`,
    {
      config: { action: 'read' },
      schema: {
        tags,
        summary: 'List the groups below a group',
        description:
          'Level 1 are its children, which is all that is listed unless `start_level`, `end_level` or `tree` say otherwise.',
        params,
        querystring: ChildrenQuery,
        response: responses({ 200: GroupPage }, 'unauthenticated', 'forbidden', 'not_found', 'conflict'),
      },
    },
    async (request) =>
      presentPage(await hierarchy.children(request.principal, addressOf(request.params), request.query), request.query),
  )
}

/** Giving a group a parent, or none. */
function addParentRoutes(app: HttpApp, moves: MovesService, { base, params }: (typeof GROUP_PATHS)[number]): void {
  app.post(
    `${base}/parent`,
    {
      config: { action: 'set_parent' },
      schema: {
        tags,
        summary: 'Put a group below another',
        description: 'Needs `set_child` on the parent. A group with a parent is taken from there first.',
        params,
        body: ParentUpdate,
        response: responses(
          { 200: NoBody },
          'unauthenticated',
          'forbidden',
          'not_found',
          'conflict',
          'unprocessable',
          'unsupported_media_type',
          'too_large',
        ),
      },
    },
    async (request, reply) => {
      await moves.setParent(request.principal, addressOf(request.params), request.body.parent_id)
      return await reply.code(200).send()
    },
  )
  app.delete(
    `${base}/parent`,
    {
      config: { action: 'set_parent' },
      schema: {
        tags,
        summary: 'Make a group a root',
        description: 'What is below it stays below it. Needs `set_child` on the parent; a root stays one.',
        params,
        response: responses({ 204: NoBody }, 'unauthenticated', 'forbidden', 'not_found', 'conflict', 'unprocessable'),
      },
    },
    async (request, reply) => {
      await moves.removeParent(request.principal, addressOf(request.params))
      return await reply.code(204).send()
    },
  )
}

/** Giving a group children, or none. */
function addChildrenRoutes(app: HttpApp, moves: MovesService, { base, params }: (typeof GROUP_PATHS)[number]): void {
  for (const [method, success, summary, description] of [
    ['POST', 200, 'Put groups below a group, all or none', 'Needs `set_parent` on each of them.'],
    [
      'DELETE',
      204,
      'Make children of a group roots, all or none',
      'Needs `set_parent` on each of them; a group without a parent is no error.',
    ],
  ] as const) {
    app.route({
      method,
      url: `${base}/children`,
      config: { action: 'set_child' },
      schema: {
        tags,
        summary,
        description,
        params,
        body: ChildrenUpdate,
        response: responses(
          { [success]: NoBody },
          'unauthenticated',
          'forbidden',
          'not_found',
          'conflict',
          'unprocessable',
          'unsupported_media_type',
          'too_large',
        ),
      },
      handler: async (request, reply) => {
        const { children_ids: ids } = request.body
        const change = method === 'POST' ? moves.addChildren : moves.removeChildren
        await change(request.principal, addressOf(request.params), ids)
        return await reply.code(success).send()
      },
    })
  }
  app.delete(
    `${base}/children/all`,
    {
      config: { action: 'set_child' },
      schema: {
        tags,
        summary: 'Make all children of a group roots',
        description: 'Needs `set_parent` on each of them.',
        params,
        response: responses({ 204: NoBody }, 'unauthenticated', 'forbidden', 'not_found', 'conflict'),
      },
    },
    async (request, reply) => {
      await moves.removeAllChildren(request.principal, addressOf(request.params))
      return await reply.code(204).send()
    },
  )
}
