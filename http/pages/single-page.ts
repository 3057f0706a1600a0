/**
 * A page that was built from modules: its files, and its document for every other path below. The document is the same behind any
 * prefix of a reverse proxy, because its base is relative to the path of the request.
 */
import { randomBytes } from 'node:crypto'
import { readFile, readdir } from 'node:fs/promises'
import { extname, join } from 'node:path'
import type { FastifyReply, FastifyRequest } from 'fastify'
import { PROTOCOL_STATUS, ServiceError } from '#core/errors/index.ts'
import type { RoutePlugin } from '../app.ts'
import { KeptAnswer, renderOnce, sendKept } from '../answers/kept-answers.ts'
import { RESPONSE_HEADERS } from '../answers/security-headers.ts'

export type SinglePage = {
  /** Starts with `/` and has one segment. */
  readonly path: string
  /**
   * Documents beside `index.html` for frames that run code of users: they have no origin, no network, and may compile
   * WebAssembly.
   */
  readonly sandboxes?: readonly string[]
  /** The folder with `index.html`, or what to show without one. */
  readonly page: { folder: string } | PageNotice
}

export type PageNotice = {
  readonly title: string
  readonly text: string
}

/** Placeholders of the built document. */
export const BASE_PLACEHOLDER = '__BASE__'
export const NONCE_PLACEHOLDER = '__NONCE__'

/** Below it, names contain a digest of the content. */
const HASHED_FOLDER = 'assets/'
const DOCUMENT = 'index.html'
const YEAR = 'public, max-age=31536000, immutable'

const TYPES: Readonly<Record<string, string>> = {
  '.css': 'text/css; charset=utf-8',
  '.html': 'text/html; charset=utf-8',
  '.js': 'text/javascript; charset=utf-8',
  '.json': 'application/json',
  '.svg': 'image/svg+xml',
  '.txt': 'text/plain; charset=utf-8',
  '.wasm': 'application/wasm',
  '.woff2': 'font/woff2',
}

/** The names of compressed forms of a file in the folder. */
const FORMS = [
  ['br', '.br'],
  ['gzip', '.gz'],
] as const

/** Each file is read when it is first asked for, and kept. */
type BuiltPage = { document: string; files: ReadonlyMap<string, () => Promise<KeptAnswer>> }

const headersOf = (nonce: string) => ({
  ...RESPONSE_HEADERS,
  'Cache-Control': 'no-store',
  'Content-Security-Policy': [
    "default-src 'none'",
    "script-src 'self'",
    `style-src 'self' 'nonce-${nonce}'`,
    "img-src 'self' data:",
    "font-src 'self'",
    "connect-src 'self'",
    "frame-src 'self'",
    "manifest-src 'self'",
    "base-uri 'self'",
    "form-action 'none'",
    "frame-ancestors 'none'",
  ].join('; '),
  'X-Frame-Options': 'DENY',
  'Referrer-Policy': 'no-referrer',
  'Cross-Origin-Opener-Policy': 'same-origin',
})

const SANDBOX_HEADERS = {
  ...RESPONSE_HEADERS,
  'Content-Security-Policy': [
    'sandbox allow-scripts',
    "default-src 'none'",
    "script-src 'self' 'wasm-unsafe-eval'",
    'worker-src blob:',
    "base-uri 'none'",
    "form-action 'none'",
    "frame-ancestors 'self'",
  ].join('; '),
  'X-Frame-Options': 'SAMEORIGIN',
  'Referrer-Policy': 'no-referrer',
}

export function singlePage({ path, page, sandboxes = [] }: SinglePage): RoutePlugin {
  const source = 'folder' in page ? renderOnce(() => readBuilt(page.folder)) : page
  const sendDocument = async (request: FastifyRequest, reply: FastifyReply) => {
    const nonce = randomBytes(16).toString('base64')
    void reply.type('text/html; charset=utf-8').headers(headersOf(nonce))
    const base = escapeAttribute(baseOf(request.url, path))
    if ('title' in source) return await reply.code(PROTOCOL_STATUS.unavailable.http).send(noticePage(source, nonce))
    const { document } = await source()
    return await reply.send(document.replaceAll(NONCE_PLACEHOLDER, nonce).replaceAll(BASE_PLACEHOLDER, base))
  }
  const sendFile = async (request: FastifyRequest, reply: FastifyReply, name: string, file: KeptAnswer) => {
    const isHashed = name.startsWith(HASHED_FOLDER)
    void reply.headers({
      ...RESPONSE_HEADERS,
      // A frame without an origin loads its scripts from another one. The files are public.
      ...(sandboxes.length > 0 && isHashed ? { 'Access-Control-Allow-Origin': '*' } : {}),
      ...(sandboxes.includes(name) ? SANDBOX_HEADERS : {}),
    })
    return await sendKept(request, reply, file, isHashed ? YEAR : 'no-cache')
  }
  return (app) => {
    const options = { config: { isPublic: true }, schema: { hide: true } }
    app.get(path, options, sendDocument)
    app.get(`${path}/*`, options, async (request, reply) => {
      const name = (request.params as { '*': string })['*']
      const file = 'title' in source ? undefined : (await source()).files.get(name)
      if (file !== undefined) return await sendFile(request, reply, name, await file())
      // A file that a newer build no longer has is missing; it is not the document.
      if (name.startsWith(HASHED_FOLDER)) throw new ServiceError('not_found', 'no such file')
      return await sendDocument(request, reply)
    })
  }
}

async function readBuilt(folder: string): Promise<BuiltPage> {
  const entries = await readdir(folder, { recursive: true, withFileTypes: true })
  const names = entries
    .filter((entry) => entry.isFile())
    .map((entry) => join(entry.parentPath, entry.name).slice(folder.length + 1))
  const has = new Set(names)
  const files = names
    .filter((name) => name !== DOCUMENT)
    .map((name) => [name, renderOnce(() => readAnswer(folder, name, has))] as const)
  return { document: await readFile(join(folder, DOCUMENT), 'utf8'), files: new Map(files) }
}

async function readAnswer(folder: string, name: string, names: ReadonlySet<string>): Promise<KeptAnswer> {
  const forms = FORMS.filter(([, suffix]) => names.has(`${name}${suffix}`)).map(
    ([encoding, suffix]) => [encoding, () => readFile(join(folder, `${name}${suffix}`))] as const,
  )
  const type = TYPES[extname(name)] ?? 'application/octet-stream'
  const content = await readFile(join(folder, name))
  return new KeptAnswer(type, content, forms.length === 0 ? {} : { given: Object.fromEntries(forms) })
}

/** The folder of the page, relative to the path of the request: `console/` for `/console`, `../` for `/console/a/`. */
function baseOf(url: string, path: string): string {
  const below = (url.split('?', 1)[0] ?? '').slice(path.length)
  if (!below.startsWith('/')) return `${path.slice(1)}/`
  const depth = below.split('/').length - 2
  return depth === 0 ? './' : '../'.repeat(depth)
}

function noticePage({ title, text }: PageNotice, nonce: string): string {
  const style =
    'body{font:16px/1.5 system-ui,sans-serif;margin:20vh auto;max-width:32rem;padding:0 1rem;color-scheme:light dark}code{font:14px ui-monospace,monospace}'
  return `<!doctype html><html lang="en"><meta charset="utf-8"><meta name="viewport" content="width=device-width"><title>${title}</title><style nonce="${nonce}">${style}</style><h1>${title}</h1><p>${text}</p></html>\n`
}

const escapeAttribute = (text: string) => text.replaceAll(/[&<>"']/g, '')
