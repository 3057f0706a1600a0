import { expect, test } from 'vitest'
import { managerPaths } from './edge-paths.ts'

test('a route that is a whole path is led exactly, and longer ones by their beginning', () => {
  const manager = ['/tasks', '/tasks/:task_id', '/tasks/:task_id/runs', '/runs', '/tickets/:ticket']
  expect(managerPaths({ platform: ['/:domain_id/tasks', '/ticket'], manager })).toEqual([
    '/runs',
    '/tasks',
    '/tasks/*',
    '/tickets/*',
  ])
})

test('a path that could be of both is refused', () => {
  expect(() => managerPaths({ platform: ['/tasks/export'], manager: ['/tasks/:task_id'] })).toThrow('/tasks/export')
  expect(() => managerPaths({ platform: ['/runs'], manager: ['/runs'] })).toThrow('/runs')
  expect(() => managerPaths({ platform: [], manager: ['/:domain_id/tasks'] })).toThrow('first segment')
})
