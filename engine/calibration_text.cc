// The text that calibrated profiles are made from. Changing one byte changes every new profile.
#include "engine/calibration.h"

namespace kv {

// Written for this project: prose, dialogue, a table, code in three languages, numbers, markup, and
// a few lines in other languages, so that keys of many kinds are seen.
constexpr std::string_view kOwnText = R"TEXT(
The lighthouse at Carrow Point had not been manned for thirty years when Ines Marchetti bought
it, sight unseen, at an auction in the county hall. She paid less for it than her neighbours had
paid for their boats. The roof leaked, the stairs were missing every fourth board, and a family
of jackdaws had settled in the lamp room with the air of tenants who hold a long lease. "It will
need some work," said the auctioneer, who had never climbed higher than the door. She nodded,
signed three papers, and drove out along the causeway before the tide came in.

What is a cache? In the plainest words, it is a place where you keep an answer because you
expect the same question again. A cook who chops ten onions at noon, although the first guest
wants only one, keeps a cache. So does a librarian who leaves yesterday's most wanted books on
the desk. Three things can go wrong: the answer may be stale, the shelf may be full, or the
answer may belong to a slightly different question. The third mistake is the worst of them,
since nobody notices it until much later.

Chapter 2. Measurements

| station | depth (m) | temp (C) | salinity | oxygen |
|---------|-----------|----------|----------|--------|
| A-01    | 12.5      | 14.82    | 34.91    | 6.20   |
| A-02    | 48.0      | 11.07    | 35.02    | 5.75   |
| B-17    | 310.25    | 6.44     | 35.11    | 4.08   |

Between 08:15 and 11:40 on 3 March 2019 the vessel covered 27.6 nautical miles; its mean speed
was therefore about 8.1 knots. If the current is 1.3 knots against us, and the harbour lies 19
miles to the north-east, we shall need 19 / (8.1 - 1.3) = 2.79 hours, or two hours and
forty-eight minutes.

def moving_average(values, width):
    """Mean of each run of `width` neighbours; empty if there are too few values."""
    if width <= 0:
        raise ValueError("width must be positive, got %d" % width)
    total, out = 0.0, []
    for i, value in enumerate(values):
        total += value
        if i >= width:
            total -= values[i - width]
        if i >= width - 1:
            out.append(total / width)
    return out

#include <stdio.h>
int main(int argc, char **argv) {
    for (int i = 1; i < argc; i++) printf("%s%c", argv[i], i + 1 < argc ? ' ' : '\n');
    return argc > 1 ? 0 : 1;
}

SELECT customer, COUNT(*) AS orders, SUM(price * amount) AS turnover
FROM sales JOIN items USING (item_id)
WHERE day BETWEEN '2021-01-01' AND '2021-12-31' GROUP BY customer HAVING orders > 5;

<article id="n42"><h1>Frost warning</h1><p>Temperatures will fall to -4&deg; tonight; please
cover your seedlings.</p></article>
{"name": "pump-7", "state": "idle", "pressure": [1.02, 0.98, 1.01], "alarm": null, "tags":
["north", "spare"]}

"You said Tuesday," Tom complained.
"I said the Tuesday after the fair," Ruth answered, without looking up from her ledger. "And the
fair was moved, because of the rain, and then moved again, because of the mayor. Do sit down.
You make the lamp flicker."
He sat down. Outside a cart went by, then a second one, then nothing at all for so long that he
began to count the ticks of the clock: eleven, twelve, thirteen.

Question: A farmer has 17 sheep. All but 9 run away. How many are left?
Answer: Nine. "All but nine" means that nine stay.
Question: Which weighs more, a kilogram of feathers or a kilogram of lead?
Answer: Neither; both weigh one kilogram, although the feathers need a larger sack.

Le vent se lève et la mer devient grise; les pêcheurs rentrent au port avant la nuit. Der alte
Müller wohnte am Ende der Straße, dort wo der Weg in den Wald führt. La niña abrió la
ventana y vio que había nevado toda la noche. Il treno per Bologna parte dal binario cinque.

Recipe for four: soak 250 g of dried beans overnight. Fry 2 onions and 3 cloves of garlic in
olive oil, add 1 carrot, 1 stick of celery, the beans and 1.5 litres of water. Simmer for 90
minutes; salt only at the end. Serve with bread, and with whatever herbs the garden still has in
October.

To install the program, unpack the archive, change into the new directory and run ./configure
--prefix=/usr/local && make -j4 && sudo make install. If the linker reports "undefined reference
to `inflate'", the development files of zlib are missing. See
https://example.org/help?page=3#build for more.

The theorem follows at once. Let x be the smallest element of S; since S is not empty and
bounded below, such an x exists. Suppose that x is even. Then x / 2 also lies in S, by property
(ii), and x / 2 < x, which contradicts the choice of x. Hence x is odd, and the proof is
complete.

Winter came early to Carrow Point. By the second week of November Ines had mended the stairs,
made peace with the jackdaws, and learned the three kinds of wind that the old charts describe:
the one that whistles, the one that knocks, and the one that leans. She kept a diary. It was
mostly about firewood. But on the last page of the year she wrote, in a hand much smaller than
her own: tonight I lit the lamp, only for an hour, and far out, where I had thought there was
nothing but water, somebody answered.
)TEXT";

const std::string_view kCalibrationText = kOwnText;

}  // namespace kv
