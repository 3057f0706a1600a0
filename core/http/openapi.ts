/** The OpenAPI 3.1 document, generated from the routes, at `/openapi.json`, and a page to browse it at `/docs`. */
import swagger from '@fastify/swagger'
import type { FastifyDynamicSwaggerOptions } from '@fastify/swagger'
import swaggerUi from '@fastify/swagger-ui'
import type { FastifySwaggerUiOptions } from '@fastify/swagger-ui'
import type { FastifyInstance } from 'fastify'
import type { HttpApp } from './edge.ts'
import { createSchemaNames } from './openapi-components.ts'

/** The page is public: it shows what the product is, never what it holds. */
const DOCS_PATH = '/docs'

/** As a plugin it would insist on a registered `@fastify/swagger`; its types hide that it is asynchronous. */
const showDocument = swaggerUi as unknown as (scope: FastifyInstance, options: FastifySwaggerUiOptions) => Promise<void>

export function registerOpenApi(app: HttpApp, { version }: { version: string }): void {
  const plain = app as unknown as FastifyInstance
  const names = createSchemaNames()
  // Called instead of registered: what is registered is loaded in a later turn and misses the routes added before it.
  const document: FastifyDynamicSwaggerOptions = {
    openapi: {
      openapi: '3.1.0',
      info: {
        title: 'Skein',
        version,
        description: 'Device messaging platform and distributed WebAssembly task manager.',
        license: { name: 'Apache-2.0', identifier: 'Apache-2.0' },
      },
      components: {
        securitySchemes: {
          bearer: {
            type: 'http',
            scheme: 'bearer',
            bearerFormat: 'JWT',
            description: 'User access token, API key or personal access token',
          },
          client: { type: 'apiKey', in: 'header', name: 'Authorization', description: '`Client <secret>` of a device' },
        },
      },
    },
    refResolver: {
      buildLocalReference: (json, _base, _fragment, index) =>
        typeof json.$id === 'string' ? json.$id : `schema-${index}`,
    },
    transformObject: (document) =>
      'openapiObject' in document ? names.refer(document.openapiObject) : document.swaggerObject,
    transform: ({ schema, url, route }) => {
      names.learn(schema)
      const config = route.config
      const isOpen = config?.isPublic === true
      const security = isOpen
        ? []
        : config?.ownCredentials === true
          ? [{ client: [] }, { bearer: [] }]
          : [{ bearer: [] }]
      const action = config?.action === undefined ? undefined : `Needs the action \`${config.action}\`.`
      const description = [schema?.description, action].filter((part) => part !== undefined).join('\n\n')
      return { schema: { ...schema, security, ...(description === '' ? {} : { description }) }, url }
    },
  }
  swagger(plain, document, () => undefined)
  plain.addHook('onRoute', (route) => {
    if (route.url === DOCS_PATH || route.url.startsWith(`${DOCS_PATH}/`))
      route.config = { ...route.config, isPublic: true }
  })
  void plain.register((scope) =>
    showDocument(scope, { routePrefix: DOCS_PATH, uiConfig: { deepLinking: true, docExpansion: 'none' } }),
  )
  plain.get('/openapi.json', { config: { isPublic: true }, schema: { hide: true } }, () => plain.swagger())
}
