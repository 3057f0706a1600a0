/**
 * The page at `/docs`: an app of its own, created at the first request, because its packages take a twentieth of a start. Unknown
 * paths below it get the errors of the edge.
 */
import { readFile } from 'node:fs/promises'
import { join } from 'node:path'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import Fastify from 'fastify'
import swagger from '@fastify/swagger'
import type { StaticDocumentSpec } from '@fastify/swagger'
import { packageFolder } from '../installation.ts'
import { PAGE_HEADERS } from './security-headers.ts'

const PAGE_PATH = '/docs'

/** Headers of one hop, or replaced in the response. */
const OWN_HEADERS = new Set(['connection', 'keep-alive', 'transfer-encoding', 'content-length', 'date'])

export function registerDocsPage(app: FastifyInstance, documentOf: () => object): void {
  let opening: Promise<FastifyInstance> | undefined
  const answer = async (request: FastifyRequest, reply: FastifyReply) => {
    opening ??= openPage(documentOf())
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

async function openPage(document: object): Promise<FastifyInstance> {
  const { default: swaggerUi } = await import('@fastify/swagger-ui')
  const files = packageFolder('@fastify/swagger-ui', 'static')
  const page = Fastify()
  await page.register(swagger, {
    mode: 'static',
    specification: { document: document as StaticDocumentSpec['document'] },
  })
  await page.register(swaggerUi, {
    routePrefix: PAGE_PATH,
    baseDir: files,
    logo: { type: 'image/svg+xml', content: await readFile(join(files, 'logo.svg')) },
    uiConfig: { deepLinking: true, docExpansion: 'none' },
  })
  await page.ready()
  return page
}
