/**
 * The page at `/docs` with its files, and the document in both of its forms. Each is rendered at the first request for it, because the
 * packages of the page take a twentieth of a start. Unknown paths below it get the errors of the edge.
 */
import { readFile, readdir } from 'node:fs/promises'
import { extname, join } from 'node:path'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import Fastify from 'fastify'
import swagger from '@fastify/swagger'
import { entryPoint, packageFolder } from '#core/installation.ts'
import { createJobQueue, jobThread } from '#core/jobs/index.ts'
import { KeptAnswer, renderOnce, sendKept } from '../answers/kept-answers.ts'
import { PAGE_HEADERS } from '../answers/security-headers.ts'

const PAGE_PATH = '/docs'
const INDEX = 'static/index.html'
const YAML_TYPE = 'application/x-yaml'
/** The document in YAML has 1 MB; writing it takes 0.2 s, in a thread of its own. */
const MAX_YAML_MS = 60_000
const YAML_HEAP_MIB = 512

const FILE_TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'application/javascript; charset=utf-8',
  '.png': 'image/png',
  '.svg': 'image/svg+xml',
}

type Answers = ReadonlyMap<string, () => Promise<KeptAnswer>>

/** `document` is the answer at `/openapi.json`. */
export function registerDocsPage(app: FastifyInstance, document: () => Promise<KeptAnswer>): void {
  const opened = renderOnce(() => openPage(document))
  const answer = async (request: FastifyRequest, reply: FastifyReply) => {
    const { '*': name } = request.params as { '*'?: string }
    // Its links are relative to the page.
    if (name === INDEX) return await reply.redirect('../')
    // The router has decoded the name, so each answer has one name, however its path is written.
    const kept = (await opened()).get(name === undefined ? PAGE_PATH : `${PAGE_PATH}/${name}`)
    if (kept === undefined) return reply.callNotFound()
    return await sendKept(request, reply.headers(PAGE_HEADERS), await kept())
  }
  for (const path of [PAGE_PATH, `${PAGE_PATH}/*`])
    app.get(path, { config: { isPublic: true }, schema: { hide: true } }, answer)
}

/** The logo of the console. */
const LOGO =
  '<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 32 32"><rect width="32" height="32" rx="8" fill="#2456c9"/><g fill="none" stroke="#fff" stroke-width="2.4" stroke-linecap="round"><path d="M7 11c6-5 12 9 18 4"/><path d="M7 16.500c6-5 12 9 18 4"/><path d="M7 22c6-5 12 9 18 4" opacity=".65"/></g></svg>'

/** The answers by their paths. */
async function openPage(document: () => Promise<KeptAnswer>): Promise<Answers> {
  const { default: swaggerUi } = await import('@fastify/swagger-ui')
  const folder = packageFolder('@fastify/swagger-ui', 'static')
  await using page = Fastify()
  // The page reads the document from its address.
  await page.register(swagger, {
    mode: 'static',
    specification: { document: { openapi: '3.1.0', info: { title: 'Skein', version: '' }, paths: {} } },
  })
  await page.register(swaggerUi, {
    routePrefix: PAGE_PATH,
    baseDir: folder,
    logo: { type: 'image/svg+xml', content: Buffer.from(LOGO), href: '/' },
    theme: {
      title: 'Skein API',
      favicon: [{ filename: 'icon.svg', rel: 'icon', sizes: 'any', type: 'image/svg+xml', content: LOGO }],
    },
    uiConfig: { deepLinking: true, docExpansion: 'none' },
  })
  await page.ready()
  const answers = new Map<string, () => Promise<KeptAnswer>>()
  for (const name of await readdir(folder)) {
    const type = FILE_TYPES[extname(name)]
    if (type === undefined) continue
    const render = async () => new KeptAnswer(type, await readFile(join(folder, name)))
    answers.set(`${PAGE_PATH}/static/${name}`, renderOnce(render))
  }
  // These contain the settings of the page, and replace the files of these names.
  for (const path of [PAGE_PATH, `${PAGE_PATH}/`, `${PAGE_PATH}/static/swagger-initializer.js`]) {
    const { statusCode, headers, rawPayload } = await page.inject({ url: path })
    if (statusCode !== 200) throw new Error(`the documentation page has no ${path}`)
    const kept = new KeptAnswer(String(headers['content-type']), rawPayload)
    answers.set(path, () => Promise.resolve(kept))
  }
  answers.set(`${PAGE_PATH}/static/theme/icon.svg`, () => Promise.resolve(new KeptAnswer('image/svg+xml', LOGO)))
  answers.set(`${PAGE_PATH}/json`, document)
  answers.set(
    `${PAGE_PATH}/yaml`,
    renderOnce(async () => new KeptAnswer(YAML_TYPE, await yamlOf((await (await document()).in(undefined)).bytes))),
  )
  return answers
}

async function yamlOf(json: Buffer): Promise<string> {
  const thread = createJobQueue<{ json: string }, string>(
    { what: 'document', maxJobMs: MAX_YAML_MS, maxWaitingOfOwner: 1, maxWaiting: 1, isEndedAfterJob: true },
    jobThread(entryPoint('http/openapi/yaml-thread.ts'), YAML_HEAP_MIB),
  )
  return await thread.run({ json: json.toString() }, PAGE_PATH)
}
