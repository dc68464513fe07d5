/** Tells how a result was made: what came from elsewhere, and the steps. */
import type { BuildMaterial, BuildRecipe, RecipeGift, RecipeStep } from '../../../ports/build.js';
import { inOrder } from './schedule.js';
import { inputsOf, type PlannedStep } from './step.js';

/** @param materials that steps have fetched, by their digests. */
export function recipeOf(target: PlannedStep | undefined, materials: ReadonlyMap<string, BuildMaterial>): BuildRecipe {
  const steps: RecipeStep[] = [];
  const places = new Map<string, number>();
  const secrets = new Map<string, RecipeGift>();
  const ssh = new Map<string, RecipeGift>();
  const used: BuildMaterial[] = [];
  for (const step of inOrder(target === undefined ? [] : [target])) {
    const { recipe } = step.operation;
    const material = recipe?.material ?? materials.get(step.digest);
    if (material !== undefined) used.push(material);
    if (recipe === undefined) continue;
    places.set(step.digest, steps.length);
    const inputs = inputsOf(step).flatMap(({ digest }) => places.get(digest) ?? []);
    steps.push({ operation: recipe.operation, inputs, lines: step.lines });
    for (const gift of recipe.secrets ?? []) secrets.set(gift.id, gift);
    for (const gift of recipe.ssh ?? []) ssh.set(gift.id, gift);
  }
  return { materials: used, steps, secrets: [...secrets.values()], ssh: [...ssh.values()] };
}
