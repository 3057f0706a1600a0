import { describe, expect, it } from 'vitest'
import { renderResponse } from './table.ts'
import type { View } from './table.ts'

const render = (value: unknown, view: View = {}, width = 100) =>
  renderResponse(value, view, width, (_style, text) => text)
const ID = '0b6f7e0e-58a2-4a7e-9e0c-0d9f3d0c0001'

describe('results on a terminal', () => {
  it('are tables of the preferred columns that the rows have', () => {
    const page = {
      total: 12,
      offset: 0,
      limit: 2,
      clients: [
        { id: ID, name: 'pump', credentials: { secret: 's' }, state: 1, created_at: '2026-01-01T12:00:00.123456Z' },
        { id: ID, name: '泵', credentials: { secret: 't' }, state: 0, created_at: '0001-01-01T00:00:00Z' },
      ],
    }
    const view = {
      columns: ['id', 'name', 'credentials.secret', 'state', 'created_at', 'gone'],
      labels: { state: ['off', 'on'] },
    }
    expect(render(page, view).split('\n')).toEqual([
      `ID                                    NAME  SECRET  STATE  CREATED AT`,
      `${ID}  pump  s       on     2026-01-01 12:00:00`,
      `${ID}  泵    t       off    never`,
      '1-2 of 12; continue with --offset 2',
    ])
  })

  it('name columns that end alike by their whole paths', () => {
    const tasks = [{ state: 0, last_run: { state: 1 }, last_error: { reason: 'no module' } }]
    const view = {
      columns: ['state', 'last_run.state', 'last_error.reason'],
      labels: { state: ['pending', 'scheduled'], 'last_run.state': ['pending', 'scheduled'] },
    }
    expect(render({ total: 1, tasks }, view).split('\n').slice(0, 2)).toEqual([
      'STATE    LAST RUN STATE  REASON',
      'pending  scheduled       no module',
    ])
  })

  it('fit the terminal: texts are cut, then columns are dropped, and ids stay whole', () => {
    const rows = [{ id: ID, name: 'a name of thirty characters ...', description: 'another long text of a row' }]
    for (const width of [100, 80, 60, 50]) {
      const [head = '', row = ''] = render({ rows }, {}, width).split('\n')
      expect(row).toContain(ID)
      expect(head.length).toBeLessThanOrEqual(width)
      expect(row.length).toBeLessThanOrEqual(width)
    }
  })

  it('are keys and values for one entity, with certificates unchanged', () => {
    const text = render({
      id: ID,
      credentials: { identity: 'x' },
      metadata: { a: 1 },
      certificate: 'BEGIN\nabc\nEND\n',
    })
    expect(text).toBe(
      [
        `id                  ${ID}`,
        'credentials.identityx',
        'metadata            {"a":1}',
        'certificate         ',
        'BEGIN',
        'abc',
        'END',
      ]
        .join('\n')
        .replace('identityx', 'identity  x')
        .replaceAll(/^(id|metadata|certificate) {2,}/gm, (_match, key: string) => key.padEnd(22))
        .replace(/certificate +$/m, 'certificate'.padEnd(20)),
    )
  })

  it('report an empty list', () => {
    expect(render({ total: 0, offset: 0, limit: 10, clients: [] })).toBe('none')
    expect(render({ available_actions: ['read', 'update'] })).toBe('read\nupdate')
  })

  it('contain no text that moves the cursor or begins a line', () => {
    expect(render({ rows: [{ name: 'a\u001B[2J\nb\u009B1m\u202Ec' }] })).toBe('NAME\na�[2J�b�1m�c')
  })

  it('use the first of two names for the same rows', () => {
    expect(render({ total: 1, users: [{ id: 'u' }], members: [{ id: 'u' }] })).toBe('ID\nu\n1-1 of 1')
  })
})
