"""The words of the shop's titles for names of Fashion; names that are not here stay as they are."""
readable = dict(
    Backpacks='backpack', Belts='belt', Briefs='brief', Caps='cap', Clutches='clutch',
    Dresses='dress', Handbags='handbag', Jackets='jacket', Kurta_Sets='kurta set', Kurtas='kurta',
    Kurtis='kurti', Mufflers='muffler', Necklace_and_Chains='necklace', Sarees='sari',
    Scarves='scarf', Shirts='shirt', Skirts='skirt', Stoles='stole', Sweaters='sweater',
    Sweatshirts='sweatshirt', Ties='tie', Tops='top', Tracksuits='tracksuit', Tshirts='t-shirt',
    Tunics='tunic', Wallets='wallet')
