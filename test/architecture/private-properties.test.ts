/** Dependencies and Node are used as their documentation says: no file of the product looks into them or replaces a part of them. */
import { describe, expect, it } from 'vitest'
import { productSources } from './source-imports.ts'
import type { SourceFile } from './source-imports.ts'

type Rule = { what: string; pattern: RegExp; except?: Readonly<Record<string, string>> }

const RULES: readonly Rule[] = [
  {
    what: 'a property with an underscore is private',
    pattern: /(?:\.|\?\.)_\w+|\[['"]_\w+['"]\]/g,
    except: {
      'guests/calls/core-module.ts': 'an export of a module of WASI is named _initialize',
    },
  },
  { what: 'symbols of others are private', pattern: /getOwnPropertySymbols|Reflect\.ownKeys/g },
  {
    what: 'a cast to a shape of our own reaches what types do not declare',
    pattern: /\bas unknown as (?:\{|Readonly<\{)/g,
  },
  { what: "Node's insides are not for programs", pattern: /process\.binding|getBuiltinModule|['"]internal\// },
  {
    what: 'prototypes of others stay as they are',
    pattern: /\.prototype\.\w+ = |\.prototype\[[^\]]+\] = |setPrototypeOf\(/g,
  },
  {
    what: "a method of Node's objects is replaced",
    pattern:
      /\b(?:socket|connection|request|response|reply|server|stream|stdout|stderr|process)\.\w+ = (?:\(|async\b|function\b|\w+ =>)/g,
  },
  {
    what: 'files of a package are its own',
    pattern: /from '(?:[a-z@][\w@/.-]*\/)?node_modules\/|from '[a-z@][^'#.]*\/(?:lib|src|build)\/[^']*'/g,
  },
]

/** One sentence per place. */
function findPrivate({ path, text }: SourceFile): string[] {
  const code = text
    .split('\n')
    .filter((line) => !/^\s*(?:\/\/|\*|\/\*)/.test(line))
    .join('\n')
  return RULES.filter((rule) => rule.except?.[path] === undefined).flatMap(({ what, pattern }) =>
    [...code.matchAll(new RegExp(pattern.source, 'g'))].map(([found]) => `${path} has ${found}: ${what}`),
  )
}

describe('private properties', () => {
  const sources = productSources()

  it('of a dependency or of Node are used nowhere', () => {
    expect(sources.length).toBeGreaterThan(500)
    expect(sources.flatMap(findPrivate)).toEqual([])
  })

  it('has no exception that is not needed', () => {
    const excepted = RULES.flatMap(({ pattern, except = {} }) => Object.keys(except).map((path) => ({ path, pattern })))
    const unneeded = excepted.filter(
      ({ path, pattern }) => sources.find((one) => one.path === path)?.text.search(pattern) === -1,
    )
    expect(unneeded).toEqual([])
  })

  it.each([
    ['an underscore', 'response._headers'],
    ['an underscore behind a question', 'socket?._handle.fd'],
    ['an underscore in brackets', `schema['_cached']`],
    ['symbols', 'Object.getOwnPropertySymbols(socket)'],
    ['a shape of our own', '(client as unknown as { connection: Socket }).connection'],
    ['a module of Node past its import', `process.getBuiltinModule('node:http')`],
    ['bindings', `process.binding('fs')`],
    ['a prototype', 'Socket.prototype.destroySoon = later'],
    ['a method of a socket', 'socket.destroySoon = () => linger(socket)'],
    ['a method of a response', 'response.end = function end() {}'],
    ['a file of a package', `import Reply from 'fastify/lib/reply.js'`],
  ])('finds %s', (_what, text) => {
    expect(findPrivate({ path: 'core/planted.ts', text })).toHaveLength(1)
  })
})
