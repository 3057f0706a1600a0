/** Routes of personal access tokens (contract section 6). All of them require a login: see `access/route-rules.ts`. */
import { Type } from 'typebox'
import { NoBody, responses } from '#http/index.ts'
import type { HttpApp, RoutePlugin } from '#http/index.ts'
import { Id } from '../wire/index.ts'
import {
  NewPat,
  Pat,
  PatDescription,
  PatDuration,
  PatName,
  PatPage,
  PatQuery,
  PatScopePage,
  PatScopes,
  ScopeQuery,
  ScopesToAdd,
  ScopesToRemove,
  presentPat,
  presentScope,
} from './schema.ts'
import type { PatsService } from './service.ts'

const Params = Type.Object({ pat_id: Id })
const config = { action: 'pat.manage' }
const tags = ['personal access tokens']

export function patRoutes(pats: PatsService): RoutePlugin {
  return (app) => {
    addTokenRoutes(app, pats)
    addChangeRoutes(app, pats)
    addScopeRoutes(app, pats)
  }
}

/** Adds the routes that create, list, view and delete tokens. */
function addTokenRoutes(app: HttpApp, pats: PatsService): void {
  app.post(
    '/pats',
    {
      config,
      schema: {
        tags,
        summary: 'Create a personal access token',
        description: 'Only this response contains the secret. The token has no permissions until scopes are added.',
        body: NewPat,
        response: responses({ 201: Pat }, 'unprocessable'),
      },
    },
    async (request, reply) => {
      const { pat, secret } = await pats.create(request.principal, request.body)
      void reply.code(201)
      return presentPat(pat, secret)
    },
  )
  app.get(
    '/pats',
    {
      config,
      schema: {
        tags,
        summary: 'List the personal access tokens of the caller',
        description: 'Newest first. Secrets are never returned.',
        querystring: PatQuery,
        response: responses({ 200: PatPage }),
      },
    },
    async (request) => {
      const { items, ...page } = await pats.list(request.principal, request.query)
      return { ...page, pats: items.map((pat) => presentPat(pat)) }
    },
  )
  app.delete(
    '/pats',
    {
      config,
      schema: {
        tags,
        summary: 'Delete all personal access tokens of the caller',
        response: responses({ 200: NoBody }),
      },
    },
    async (request, reply) => {
      await pats.removeAll(request.principal)
      return await reply.code(200).send()
    },
  )
  app.get(
    '/pats/:pat_id',
    {
      config,
      schema: {
        tags,
        summary: 'View a personal access token',
        params: Params,
        response: responses({ 200: Pat }, 'not_found'),
      },
    },
    async (request) => presentPat(await pats.get(request.principal, request.params.pat_id)),
  )
  app.delete(
    '/pats/:pat_id',
    {
      config,
      schema: {
        tags,
        summary: 'Delete a personal access token',
        params: Params,
        response: responses({ 204: NoBody }, 'not_found'),
      },
    },
    async (request, reply) => {
      await pats.remove(request.principal, request.params.pat_id)
      return await reply.code(204).send()
    },
  )
}

/** Adds the routes that change one token. */
function addChangeRoutes(app: HttpApp, pats: PatsService): void {
  app.patch(
    '/pats/:pat_id/name',
    {
      config,
      schema: {
        tags,
        summary: 'Rename a personal access token',
        params: Params,
        body: PatName,
        response: responses({ 202: Pat }, 'not_found'),
      },
    },
    async (request, reply) => {
      const { name } = request.body
      void reply.code(202)
      return presentPat(await pats.update(request.principal, request.params.pat_id, { name }))
    },
  )
  app.patch(
    '/pats/:pat_id/description',
    {
      config,
      schema: {
        tags,
        summary: 'Change the description of a personal access token',
        params: Params,
        body: PatDescription,
        response: responses({ 202: Pat }, 'not_found'),
      },
    },
    async (request, reply) => {
      const { description } = request.body
      void reply.code(202)
      return presentPat(await pats.update(request.principal, request.params.pat_id, { description }))
    },
  )
  app.patch(
    '/pats/:pat_id/secret/reset',
    {
      config,
      schema: {
        tags,
        summary: 'Reset the secret and the lifetime of a personal access token',
        description: 'The old secret is invalid immediately. A revoked or expired token becomes active again.',
        params: Params,
        body: PatDuration,
        response: responses({ 200: Pat }, 'not_found'),
      },
    },
    async (request) => {
      const { pat, secret } = await pats.resetSecret(request.principal, request.params.pat_id, request.body.duration)
      return presentPat(pat, secret)
    },
  )
  app.patch(
    '/pats/:pat_id/secret/revoke',
    {
      config,
      schema: {
        tags,
        summary: 'Revoke the secret of a personal access token',
        description:
          'The token becomes invalid within a second on every node. Its scopes are kept for a later reset of the secret.',
        params: Params,
        response: responses({ 204: NoBody }, 'not_found'),
      },
    },
    async (request, reply) => {
      await pats.revoke(request.principal, request.params.pat_id)
      return await reply.code(204).send()
    },
  )
}

/** Adds the routes of the scopes of a token. */
function addScopeRoutes(app: HttpApp, pats: PatsService): void {
  app.patch(
    '/pats/:pat_id/scope/add',
    {
      config,
      schema: {
        tags,
        summary: 'Add scopes to a personal access token',
        description: 'Adds all scopes or none. A scope contains an entity that the owner may read, or `*`.',
        params: Params,
        body: ScopesToAdd,
        response: responses({ 200: PatScopes }, 'not_found', 'conflict', 'unprocessable'),
      },
    },
    async (request) => {
      const scopes = await pats.addScopes(request.principal, request.params.pat_id, request.body.scopes)
      return { scopes: scopes.map(presentScope) }
    },
  )
  app.patch(
    '/pats/:pat_id/scope/remove',
    {
      config,
      schema: {
        tags,
        summary: 'Remove scopes from a personal access token',
        params: Params,
        body: ScopesToRemove,
        response: responses({ 200: NoBody }, 'not_found'),
      },
    },
    async (request, reply) => {
      await pats.removeScopes(request.principal, request.params.pat_id, request.body.scopes_id)
      return await reply.code(200).send()
    },
  )
  app.get(
    '/pats/:pat_id/scope',
    {
      config,
      schema: {
        tags,
        summary: 'List the scopes of a personal access token',
        params: Params,
        querystring: ScopeQuery,
        response: responses({ 200: PatScopePage }, 'not_found'),
      },
    },
    async (request) => {
      const { items, ...page } = await pats.listScopes(request.principal, request.params.pat_id, request.query)
      return { ...page, scopes: items.map(presentScope) }
    },
  )
  app.delete(
    '/pats/:pat_id/scope',
    {
      config,
      schema: {
        tags,
        summary: 'Remove all scopes of a personal access token',
        params: Params,
        response: responses({ 200: NoBody }, 'not_found'),
      },
    },
    async (request, reply) => {
      await pats.removeScopes(request.principal, request.params.pat_id, undefined)
      return await reply.code(200).send()
    },
  )
}
