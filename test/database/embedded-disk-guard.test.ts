/** Below 1 GiB or 5 % of free disk ingest is refused before PostgreSQL panics (mechanisms section 5.8). */
import { rmSync } from 'node:fs'
import { describe, expect, it } from 'vitest'
import { createDiskGuard, diskSpace } from '#postgres/embedded/index.ts'
import { temporaryFolder, until } from './embedded-support.ts'

describe('the disk guard', () => {
  it('has room above both limits, and none below either of them', async () => {
    using folder = temporaryFolder()
    const { freeBytes, totalBytes } = await diskSpace(folder.path)
    const roomFor = (minFreeBytes: number, minFreeFraction: number) => {
      const guard = createDiskGuard({ path: folder.path, minFreeBytes, minFreeFraction })
      guard.close()
      return guard.hasRoom()
    }
    expect(freeBytes).toBeLessThanOrEqual(totalBytes)
    expect(roomFor(0, 0)).toBe(true)
    expect(roomFor(totalBytes + 1, 0)).toBe(false)
    expect(roomFor(0, 1)).toBe(freeBytes === totalBytes)
    expect(freeBytes).toBeGreaterThan(0)
  })

  it('looks again by itself, and has no room on a file system that cannot be asked', async () => {
    using folder = temporaryFolder()
    const guard = createDiskGuard({ path: folder.path, minFreeBytes: 0, minFreeFraction: 0, intervalMs: 5 })
    expect(guard.hasRoom()).toBe(true)
    rmSync(folder.path, { recursive: true })
    await until(() => !guard.hasRoom(), 'the refusal')
    guard.close()
  })

  it('cannot be made for a path that does not exist', () => {
    expect(() => createDiskGuard({ path: '/does/not/exist' })).toThrow('ENOENT')
  })
})
