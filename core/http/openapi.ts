/**
 * The OpenAPI 3.1 document, generated from the routes, at `/openapi.json`, with a page to browse it. What no route can
 * know, rooms say once with `describeDocument`.
 */
import swagger from '@fastify/swagger'
import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import type { FastifyContextConfig, FastifyInstance } from 'fastify'
import { registerDocsPage } from './docs-page.ts'
import type { HttpApp } from './app.ts'
import { createSchemaNames } from './openapi-components.ts'
import { HEADERS, completeOperations, operationIdOf, refusalResponses, withMediaTypes } from './openapi-operations.ts'
import type { Paths } from './openapi-operations.ts'

export type DocumentTexts = {
  /** A sentence for each tag. */
  tags?: Readonly<Record<string, string>>
  /** An example for each schema, by its `$id`. */
  examples?: Readonly<Record<string, unknown>>
  /** A paragraph for the top of the document. */
  introduction?: string
}

type Texts = { tags: Map<string, string>; examples: Map<string, unknown>; introductions: string[] }

const textsOf = new WeakMap<object, Texts>()

/** Adds words to the document of the app; rooms call it where they register their routes. */
export function describeDocument(app: HttpApp, { tags = {}, examples = {}, introduction }: DocumentTexts): void {
  const texts = textsOf.get(app)
  if (texts === undefined) throw new Error('the app has no document')
  for (const [tag, text] of Object.entries(tags)) texts.tags.set(tag, text)
  for (const [name, example] of Object.entries(examples)) texts.examples.set(name, example)
  if (introduction !== undefined) texts.introductions.push(introduction)
}

const SECURITY_SCHEMES = {
  bearer: {
    type: 'http',
    scheme: 'bearer',
    bearerFormat: 'JWT',
    description: 'User access token, API key or personal access token',
  },
  client: {
    type: 'apiKey',
    in: 'header',
    name: 'Authorization',
    description: '`Client <secret>` of a device',
  },
  basic: {
    type: 'http',
    scheme: 'basic',
    description: 'Id and secret of a device',
  },
  external_key: {
    type: 'apiKey',
    in: 'header',
    name: 'Authorization',
    description: '`Client <external key>` of a device that asks for its configuration',
  },
} as const

/** What a route that reads its own credentials takes; `none`: it works without any too. */
export type Credential = keyof typeof SECURITY_SCHEMES | 'none'

const PARAMETERS = new Set(['querystring', 'headers'])
/** What the document calls the rest of a path, which the router calls `*`. */
const REST = 'rest'

type Security = Record<string, string[]>[]

function securityOf(config: { isPublic?: boolean; ownCredentials?: readonly Credential[] } | undefined): Security {
  if (config?.isPublic === true) return []
  return (config?.ownCredentials ?? ['bearer']).map((name): Record<string, string[]> =>
    name === 'none' ? {} : { [name]: [] },
  )
}

type Document = {
  info: { description?: string }
  tags?: { name: string; description?: string }[]
  paths?: Paths
  components?: object
}

export function registerOpenApi(app: HttpApp, { version }: { version: string }): void {
  const plain = app as unknown as FastifyInstance
  const names = createSchemaNames()
  const texts: Texts = { tags: new Map(), examples: new Map(), introductions: [] }
  textsOf.set(app, texts)
  /** By operation id as the path gives it. */
  const configs = new Map<string, FastifyContextConfig>()

  function complete(made: object): object {
    const document = names.refer(made, texts.examples) as Document
    const paths = completeOperations(document.paths ?? {}, (operationId) => configs.get(operationId)?.location)
    for (const operations of Object.values(paths)) {
      for (const operation of Object.values(operations)) {
        const types = configs.get(operation.operationId ?? '')?.mediaType
        if (types !== undefined && operation.responses !== undefined)
          operation.responses = withMediaTypes(operation.responses, [types].flat())
      }
    }
    const used = new Set(
      Object.values(paths)
        .flatMap((operations) => Object.values(operations))
        .flatMap((operation) => (operation as { tags?: string[] }).tags ?? []),
    )
    const tags = [...used].toSorted().map((name) => ({ name, ...descriptionOf(texts.tags.get(name)) }))
    const description = [document.info.description, ...texts.introductions].join('\n\n')
    const components = { ...document.components, responses: refusalResponses(), headers: HEADERS }
    return { ...document, info: { ...document.info, description }, tags, paths, components }
  }

  // Called instead of registered: what is registered is loaded in a later turn and misses the routes added before it.
  const options: FastifyDynamicSwaggerOptions = {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Skein',
        version,
        description: 'Device messaging platform and distributed WebAssembly task manager.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      servers: [{ url: '/', description: 'The server that this document is read from' }],
      components: { securitySchemes: SECURITY_SCHEMES },
    },
    transformObject: (document) =>
      'openapiObject' in document
        ? (complete(document.openapiObject) as typeof document.openapiObject)
        : document.swaggerObject,
    transform: ({ schema, url, route }) => {
      const { config } = route
      const shownUrl = url.replace('*', `:${REST}`)
      for (const method of [route.method].flat()) {
        const path = shownUrl.replaceAll(/:([a-z_]+)/g, '{$1}')
        if (config !== undefined) configs.set(operationIdOf(method, path), config)
      }
      const action = config?.action === undefined ? undefined : `Needs the action \`${config.action}\`.`
      const description = [schema?.description, action].filter((part) => part !== undefined).join('\n\n')
      const body = config?.bodies === undefined ? {} : { body: contentOf(config.bodies) }
      const marked = Object.entries({ ...schema, ...body }).map(([part, value]) => {
        if (part === 'body' || part === 'response') return [part, names.mark(value)]
        if (part === 'params') return [part, withoutWildcard(names.spread(value))]
        return [part, PARAMETERS.has(part) ? names.spread(value) : value]
      })
      return {
        schema: { ...Object.fromEntries(marked), security: securityOf(config), ...descriptionOf(description) },
        url: shownUrl,
      }
    },
  }
  swagger(plain, options, () => undefined)
  plain.get('/openapi.json', { config: { isPublic: true }, schema: { hide: true } }, () => plain.swagger())
  registerDocsPage(plain, () => plain.swagger())
}

function descriptionOf(description: string | undefined): { description?: string } {
  return description === undefined || description === '' ? {} : { description }
}

/** A body with a schema for each media type, as Fastify writes it. */
function contentOf(bodies: Readonly<Record<string, unknown>>): object {
  return { content: Object.fromEntries(Object.entries(bodies).map(([type, schema]) => [type, { schema }])) }
}

/** Parameters of a path under names that can stand in a template. */
function withoutWildcard(schema: unknown): unknown {
  const { properties = {}, required = [], ...rest } = schema as { properties?: object; required?: string[] }
  const renamed = (name: string) => (name === '*' ? REST : name)
  return {
    ...rest,
    properties: Object.fromEntries(Object.entries(properties).map(([name, value]) => [renamed(name), value])),
    required: required.map(renamed),
  }
}
