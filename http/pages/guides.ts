/**
 * Pages for the browser at `/` and `/docs/guides`: links, and the guides of this installation from `docs/guides`. A guide is shown
 * as a page, with links to what this installation serves.
 */
import { readFile, readdir } from 'node:fs/promises'
import { join } from 'node:path'
import type { FastifyInstance, FastifyReply, FastifyRequest } from 'fastify'
import { Type } from 'typebox'
import { ServiceError } from '#core/errors/index.ts'
import { HOME } from '#core/installation.ts'
import type { HttpApp } from '../app.ts'
import { KeptAnswer, renderOnce, sendKept } from '../answers/kept-answers.ts'
import { escapeHtml, renderMarkdown, titleOf } from './markdown.ts'
import { PAGE_HEADERS } from '../answers/security-headers.ts'

const FOLDER = join(HOME, 'docs', 'guides')
const INDEX = 'README.md'
const GUIDES_PATH = '/docs/guides'
const CONSOLE_PATH = '/console'
const STYLE =
  'body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}' +
  'pre,code{font:14px/1.5 ui-monospace,monospace}' +
  'pre{overflow-x:auto;padding:.75rem 1rem;border:1px solid #8886;border-radius:6px}' +
  '.table{overflow-x:auto}table{border-collapse:collapse}th,td{border:1px solid #8886;padding:.3rem .6rem;text-align:left;vertical-align:top}'

export function registerPages(app: HttpApp, { version }: { version: string }): void {
  const config = { isPublic: true }
  const schema = { hide: true }
  const front = renderOnce(async () => {
    const hasConsole = (app as unknown as FastifyInstance).hasRoute({ method: 'GET', url: CONSOLE_PATH })
    return pageOf('Skein', frontPage(version, hasConsole, (await guides()).size > 0))
  })
  app.get('/', { config, schema }, async (request, reply) => await sendPage(request, reply, await front()))
  app.get(GUIDES_PATH, { config, schema }, async (request, reply) => await sendGuide(request, reply, INDEX))
  app.get(
    `${GUIDES_PATH}/:guide`,
    { config, schema: { ...schema, params: Type.Object({ guide: Type.String() }) } },
    async (request, reply) => await sendGuide(request, reply, request.params.guide),
  )
}

/** The guides by the names of their files; empty in an installation without guides. */
const guides = renderOnce(async () => {
  const names = await readdir(FOLDER).catch(() => [] as string[])
  return new Map(
    names.filter((name) => name.endsWith('.md')).map((name) => [name, renderOnce(() => renderGuide(name))]),
  )
})

async function sendGuide(request: FastifyRequest, reply: FastifyReply, name: string): Promise<FastifyReply> {
  const guide = (await guides()).get(name)
  if (guide === undefined) throw new ServiceError('not_found', 'there is no guide with this name')
  return await sendPage(request, reply, await guide())
}

async function renderGuide(name: string): Promise<KeptAnswer> {
  const [text, known] = await Promise.all([readFile(join(FOLDER, name), 'utf8'), guides()])
  return pageOf(
    titleOf(text) ?? name,
    `<p><a href="/">Skein</a> · <a href="${GUIDES_PATH}">Guides</a></p><main>${renderMarkdown(text, { linkTo: (target) => guideLink(target, known) })}</main>`,
  )
}

/** Returns a link to another guide, a part of this one, or another site. No other file of the installation is served. */
function guideLink(target: string, known: ReadonlyMap<string, unknown>): string | undefined {
  const [path = '', part] = target.split('#', 2)
  if (path === '') return target
  if (/^https?:/.test(path)) return target
  return known.has(path) ? `${GUIDES_PATH}/${path}${part === undefined ? '' : `#${part}`}` : undefined
}

function frontPage(version: string, hasConsole: boolean, hasGuides: boolean): string {
  const links = [
    ...(hasConsole ? [['Console', CONSOLE_PATH, 'manage all entities in the browser']] : []),
    ['API', '/docs', 'reference of all requests, with a form to send them'],
    ...(hasGuides ? [['Guides', GUIDES_PATH, 'how to use and operate Skein, step by step']] : []),
    ['OpenAPI document', '/openapi.json', 'for client generators'],
    ['Health', '/health', 'whether this service is running'],
  ] as [string, string, string][]
  const items = links.map(([label, path, what]) => `<li><a href="${path}">${label}</a>: ${what}</li>`).join('')
  return `<h1>Skein</h1><p>Version ${escapeHtml(version)}</p><ul>${items}</ul><p>On a command line: <code>npx skein login</code>, then <code>npx skein --help</code>.</p>`
}

function pageOf(title: string, body: string): KeptAnswer {
  const page = `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${escapeHtml(title)}</title><style>${STYLE}</style>${body}</html>\n`
  return new KeptAnswer('text/html; charset=utf-8', page)
}

async function sendPage(request: FastifyRequest, reply: FastifyReply, page: KeptAnswer): Promise<FastifyReply> {
  return await sendKept(request, reply.headers(PAGE_HEADERS), page)
}
