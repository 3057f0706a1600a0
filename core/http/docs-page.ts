/**
 * The page at `/docs`: an app of its own, made when somebody first asks for the page, because its packages are a twentieth of a
 * start. What it does not have, the edge refuses as it refuses any path.
 */
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import Fastify from 'fastify'
import type { FastifySwaggerUiOptions } from '@fastify/swagger-ui'
import { PAGE_HEADERS } from './security-headers.ts'

const PAGE_PATH = '/docs'

/** Said about one hop or made anew for the answer. */
const OWN_HEADERS = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length', 'date'])

export function registerDocsPage(app: FastifyInstance, documentOf: () => object): void {
  let opening: Promise<FastifyInstance> | undefined
  const answer = async (request: FastifyRequest, reply: FastifyReply) => {
    opening ??= openPage(documentOf)
    const page = await opening
    const { statusCode, headers, rawPayload } = await page.inject({
      url: request.url,
      headers: request.headers as never,
    })
    if (statusCode === 404) return reply.callNotFound()
    for (const [name, value] of Object.entries(headers))
      if (value !== undefined && !OWN_HEADERS.has(name)) void reply.header(name, value)
    return await reply.code(statusCode).headers(PAGE_HEADERS).send(rawPayload)
  }
  for (const path of [PAGE_PATH, `${PAGE_PATH}/*`])
    app.get(path, { config: { isPublic: true }, schema: { hide: true } }, answer)
  app.addHook('onClose', async () => {
    await (await opening?.catch(() => undefined))?.close()
  })
}

async function openPage(documentOf: () => object): Promise<FastifyInstance> {
  const { default: swaggerUi } = await import('@fastify/swagger-ui')
  // As a plugin it would insist on a registered `@fastify/swagger`; its types hide that it is asynchronous.
  const show = swaggerUi as unknown as (scope: FastifyInstance, options: FastifySwaggerUiOptions) => Promise<void>
  const page = Fastify()
  page.decorate('swagger', documentOf as never)
  await page.register((scope) =>
    show(scope, { routePrefix: PAGE_PATH, uiConfig: { deepLinking: true, docExpansion: 'none' } }),
  )
  await page.ready()
  return page
}
