"""Text for golden files: paragraphs written for this project, put together by a seeded generator.

Golden files are committed, so nothing in them comes from anybody else's documents.
"""

import random

PARAGRAPHS = [
    "The harbour of {place} froze over in the winter of {year}. Fishermen walked {n} kilometres "
    "across the ice to reach the market, pulling their catch on sledges. When the thaw came, the "
    "old wooden pier had shifted so far that it had to be rebuilt from the ground.",
    "{person} opened a small observatory near {place} in {year}. Its telescope had a mirror of "
    "{n} centimetres, ground by hand over three years. Visitors were allowed in on clear nights, "
    "and many of them saw the rings of Saturn for the first time there.",
    "A compiler reads a program in one language and writes it in another. It splits the text into "
    "tokens, builds a tree from them, checks the types, and emits instructions. Good compilers "
    "spend most of their time on the last step, because registers are few and programs are long.",
    "The recipe asks for {n} grams of flour, two eggs, a pinch of salt, and half a litre of milk. "
    "Stir until the batter is smooth, let it rest for twenty minutes, and bake it thinly in a hot "
    "pan. In {place} people eat it with apples; elsewhere they prefer cheese.",
    "Between {year} and the end of that decade, {person} mapped the caves under {place}. The "
    "longest passage measured {n} metres. A flood closed the lower gallery for good, but the "
    "drawings survived in a tin box and were printed much later.",
    "Rivers carry more than water. Sand, clay and dissolved minerals travel with the current and "
    "settle where it slows down. Over thousands of years this builds deltas, such as the one south "
    "of {place}, which grows by about {n} metres every century.",
    "The railway from {place} to the coast was finished in {year}, two years late and at twice the "
    "planned cost. {person}, who led the works, blamed the soft ground. Trains needed {n} minutes "
    "for a journey that had taken two days by cart.",
    "A cache keeps what was expensive to compute near the place where it will be needed again. It "
    "is small, so something has to leave whenever something new arrives. The art lies in guessing "
    "which entry will be asked for last; frequency, age, size and cost all carry a hint.",
    "Honey bees tell each other where flowers are by dancing. The angle of the dance gives the "
    "direction relative to the sun, and its length gives the distance. {person} needed {n} summers "
    "in {place} to show that the bees also correct for the time of day.",
    "In {year} the town council of {place} voted, {n} to four, to plant lime trees along the main "
    "street. {person} had proposed oaks. Today the trees meet above the road, and the council "
    "argues every autumn about who should sweep the leaves.",
    "Glass is made by melting sand with soda and lime. The mixture becomes liquid at about 1,500 "
    "degrees and can then be blown, cast or drawn into threads. A workshop in {place} still uses "
    "the pipe of {person}, who started there as an apprentice in {year}.",
    "The library holds {n} thousand volumes, among them the travel notes of {person}. They were "
    "written in pencil, on the backs of receipts, between {place} and the sea. A careful edition "
    "appeared in {year}; it prints the prices as well as the poems.",
    "Volcanic soil is rich in potassium and phosphorus. Farmers around {place} harvest twice a year "
    "although they know the mountain well: it last erupted in {year}, and {person} counted {n} "
    "separate ash layers in a single trench.",
    "A chess clock has two faces and only one of them runs. Whoever moves presses a lever and "
    "starts the time of the other. {person} won the open tournament of {place} in {year} with "
    "{n} seconds left, after a rook ending that is still shown to beginners.",
    "Penicillin stops bacteria from building their walls. It does nothing to viruses, which have "
    "none. A hospital in {place} used it first in {year}, on {n} patients, and {person} wrote down "
    "every dose in a green notebook.",
    "Lighthouses are told apart by their rhythm. The one at {place} shows two white flashes every "
    "{n} seconds; the next one along the coast shows a single red flash. {person} kept the lamp "
    "from {year} on and is said to have missed only one night.",
]

PLACES = ["Arvenholm", "Port Selwyn", "Kaldvik", "San Orfeo", "Brantwick", "Lower Mirrow",
          "Tessaly Bay", "Oakenford", "Vila Serena", "Noorderzee"]
PEOPLE = ["Ida Marlow", "Tobias Fenn", "Clara Whitlock", "Jonas Berg", "Amara Osei",
          "Rui Tavares", "Helene Vogt", "Sam Okafor", "Mei Lindqvist", "Pavel Horak"]
QUESTIONS = [
    "What happened in {place} in {year}?",
    "Who was {person}, and what are they known for?",
    "How many are mentioned, and why does the number matter?",
    "Summarise the documents in two sentences.",
    "Explain the main idea in simple words.",
    "Which place is described, and when did it change?",
    "Write a short list of the facts given above.",
    "Is it true that {person} lived in {place}?",
]
SYSTEMS = [
    "You are a helpful assistant. Answer from the documents.",
    "Answer briefly. If the documents do not say, say so.",
    "You are a careful librarian who explains things to children.",
]


def fill(random_source: random.Random, template: str) -> str:
    return template.format(
        place=random_source.choice(PLACES), person=random_source.choice(PEOPLE),
        year=random_source.randint(1612, 1998), n=random_source.randint(2, 980))


def document(random_source: random.Random, n_paragraphs: int) -> tuple[str, str]:
    """A title and a text of that many paragraphs."""
    title = f"{random_source.choice(PLACES)} ({random_source.randint(1, 99)})"
    text = "\n".join(fill(random_source, p)
                     for p in random_source.sample(PARAGRAPHS, n_paragraphs))
    return title, text


def chat_prompt(random_source: random.Random, documents: list[tuple[str, str]],
                question: str) -> str:
    """ChatML with the documents in the system turn, as common/tokenizer/prompt_format.h has it."""
    system = random_source.choice(SYSTEMS)
    return (f"<|im_start|>system\n{system}"
            + "".join(f"\n\n{title}\n{text}" for title, text in documents)
            + f"<|im_end|>\n<|im_start|>user\n{question}<|im_end|>\n<|im_start|>assistant\n")
