// docs/guides/console.md: a file of clients from its example to the secrets that were made
import { mkdtemp, readFile, rm, writeFile } from 'node:fs/promises'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import type { Page } from 'playwright-core'
import { afterAll, beforeAll, describe, expect, test } from 'vitest'
import { accessibilityFaults, hasNoBrowser } from './browser.ts'
import { startConsole } from './running-console.ts'
import type { RunningConsole } from './running-console.ts'

describe.skipIf(hasNoBrowser)('files in the console (needs Chromium)', () => {
  let running: RunningConsole
  let folder: string

  beforeAll(async () => {
    running = await startConsole()
    folder = await mkdtemp(join(tmpdir(), 'skein-import-'))
  })
  afterAll(async () => {
    await running?.[Symbol.asyncDispose]()
    await rm(folder, { recursive: true, force: true })
  })

  const download = async (page: Page, button: string) => {
    const [file] = await Promise.all([
      page.waitForEvent('download'),
      page.getByRole('button', { name: button }).click(),
    ])
    const path = join(folder, file.suggestedFilename())
    await file.saveAs(path)
    return path
  }

  test.each(['Clients', 'Channels'] as const)('the example of %s is a file that is right', async (kind) => {
    const domain = await running.made('/domains', { name: `Examples of ${kind}` })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    await visitor.go(`/d/${domain}/import`)
    await page.getByRole('button', { name: kind, exact: true }).click()
    const example = await download(page, 'Download an example')
    await page.getByLabel('CSV file to import').setInputFiles(example)
    await page.getByText(`The file is right: 2 ${kind.toLowerCase()}`).waitFor()
  })

  test('a file of one client is said in the singular, with a row for each of its lines', async () => {
    const domain = await running.made('/domains', { name: 'One' })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const path = join(folder, 'one.csv')
    await writeFile(path, 'name\nmeter\n')
    await visitor.go(`/d/${domain}/import`)
    await page.getByLabel('CSV file to import').setInputFiles(path)
    await page.getByText('The file is right: 1 client. All are created together, or none.').waitFor()
    // The head of the table, that of the file, and the client.
    expect(await page.getByRole('region', { name: 'Lines of the file' }).getByRole('row').count()).toBe(3)
    await page.getByRole('button', { name: 'Create 1 client', exact: true }).click()
    await page.getByText('1 client is created.').waitFor()
    expect((await running.api<{ total: number }>('GET', `/${domain}/clients`)).total).toBe(1)
  })

  test('faults are beside their rows, the mended file is read again, and the result has the ids and secrets', async () => {
    const domain = await running.made('/domains', { name: 'Files' })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const path = join(folder, 'meters.csv')
    const choose = async (text: string) => {
      await writeFile(path, text)
      await page.getByLabel('CSV file to import').setInputFiles(path)
    }
    const row = (content: string) => page.getByRole('row').filter({ hasText: content })
    await visitor.go(`/d/${domain}/import`)
    await choose('name,status\nmeter 1,enabled\nmeter 2,perhaps\nmeter 3,maybe\n')
    const notice = page.getByRole('alert')
    await notice.getByText('2 lines are marked below.').waitFor()
    expect(await notice.textContent()).toMatch(/^Nothing was created: the file has 2 errors/)
    await row('meter 2,perhaps')
      .getByText(/status/)
      .waitFor()
    await row('meter 3,maybe')
      .getByText(/status/)
      .waitFor()
    expect(await row('meter 1,enabled').getByRole('cell').last().textContent()).toBe('')
    expect(await accessibilityFaults(page)).toEqual([])
    await choose('name,status\nmeter 1,enabled\n"meter 2, north",disabled\n')
    await page.getByText('The file is right: 2 clients').waitFor()
    // What was checked is created, whatever the file on the disk says now.
    await writeFile(path, 'name\nanother\n')
    await page.getByRole('button', { name: 'Create 2 clients' }).click()
    await page.getByText('2 clients are created.').waitFor()
    const result = await readFile(await download(page, 'Download ids and secrets'), 'utf8')
    const { clients } = await running.api<{ clients: { id: string; name: string; credentials: { secret: string } }[] }>(
      'GET',
      `/${domain}/clients?status=all&order=name&dir=asc`,
    )
    expect(clients.map(({ name }) => name)).toEqual(['meter 1', 'meter 2, north'])
    expect(result.split('\r\n').toSorted()).toEqual(
      [
        '',
        'id,name,secret',
        ...clients.map(
          ({ id, name, credentials: { secret } }) => `${id},${name.includes(',') ? `"${name}"` : name},${secret}`,
        ),
      ].toSorted(),
    )
  })

  test('every line with a fault can be seen, and all are in one file', async () => {
    const domain = await running.made('/domains', { name: 'Faults' })
    await using visitor = await running.asAdmin()
    const { page } = visitor
    const path = join(folder, 'many.csv')
    // The lines that are right come first, so that none of the faulty ones is there by its place.
    const right = Array.from({ length: 60 }, (_, index) => `right ${index},enabled`)
    const wrong = Array.from({ length: 120 }, (_, index) => `wrong ${index},perhaps`)
    await writeFile(path, `${['name,status', ...right, ...wrong].join('\n')}\n`)
    await visitor.go(`/d/${domain}/import`)
    await page.getByLabel('CSV file to import').setInputFiles(path)
    await page.getByRole('alert').getByText('120 lines are marked below.').waitFor()
    const rows = page.getByRole('region', { name: 'Lines of the file' }).getByRole('row')
    expect(await rows.filter({ hasText: 'wrong' }).count()).toBe(50)
    await page.getByRole('button', { name: 'Show more lines' }).click()
    await rows.filter({ hasText: 'wrong 119,' }).waitFor()
    expect(await rows.filter({ hasText: 'wrong' }).count()).toBe(120)
    expect(await page.getByRole('button', { name: 'Show more lines' }).count()).toBe(0)
    const faults = (await readFile(await download(page, 'Download the faults'), 'utf8')).split('\r\n')
    expect([faults[0], faults.length]).toEqual(['line,content,fault', 122])
    expect([faults[1], faults[120]]).toEqual([
      expect.stringMatching(/^62,"wrong 0,perhaps",.*status/),
      expect.stringMatching(/^181,"wrong 119,perhaps",.*status/),
    ])
  })
})
